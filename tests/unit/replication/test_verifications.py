"""Which verifications that wait for a coordinator's word may still begin their transaction, and which come too late."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.replication.producers import PendingVerifications

PRODUCER = ProducerId(7)


def test_a_marker_takes_the_guard_of_the_transaction_that_it_ends() -> None:
    verifications = PendingVerifications()
    guard = verifications.begin(PRODUCER, ProducerEpoch(4), 0)

    verifications.ended(marker(epoch=5, version=2))

    with pytest.raises(KafkaError) as refused:
        verifications.require(PRODUCER, 0, guard)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_the_next_transaction_does_not_wait_for_the_marker_of_the_last() -> None:
    """EndTxn is answered before the markers are written, and they have the epoch that it gave out (KIP-890)."""
    verifications = PendingVerifications()
    guard = verifications.begin(PRODUCER, ProducerEpoch(5), 0)

    verifications.ended(marker(epoch=5, version=2))

    verifications.require(PRODUCER, 0, guard)


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_marker_of_the_first_version_has_the_epoch_of_what_it_ends_or_a_later_one(epoch: int) -> None:
    verifications = PendingVerifications()
    guard = verifications.begin(PRODUCER, ProducerEpoch(4), 0)

    verifications.ended(marker(epoch=epoch, version=0))

    with pytest.raises(KafkaError) as refused:
        verifications.require(PRODUCER, 0, guard)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_later_epoch_leaves_nothing_to_an_earlier_one() -> None:
    verifications = PendingVerifications()
    earlier = verifications.begin(PRODUCER, ProducerEpoch(4), 0)
    later = verifications.begin(PRODUCER, ProducerEpoch(5), 0)

    verifications.require(PRODUCER, 0, later)
    with pytest.raises(KafkaError) as refused:
        verifications.require(PRODUCER, 0, earlier)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_who_leads_anew_has_the_producer_try_again() -> None:
    """Somebody else may have led meanwhile, and have written the marker; INVALID_TXN_STATE would end the producer."""
    verifications = PendingVerifications()
    guard = verifications.begin(PRODUCER, ProducerEpoch(4), 0)

    verifications.end_leadership()

    with pytest.raises(KafkaError) as refused:
        verifications.require(PRODUCER, 0, guard)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def marker(*, epoch: int, version: int) -> TransactionEnd:
    return TransactionEnd(
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(epoch),
        marker=EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        transaction_version=version,
    )
