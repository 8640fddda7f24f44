import msgspec
import pytest

from quorate.coordination.transactions.core.commands import AddPartitions, VerifyPartitions, VerifyPartitionsResult
from quorate.coordination.transactions.core.decisions import add_partitions, verify_partitions
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId
from tests.unit.coordination.transactions.core.conversation import ID, P0, P1

EMPTY = Transaction(
    producer_id=ProducerId(7), producer_epoch=ProducerEpoch(3), timeout_ms=60_000, last_update_ms=0, client_version=0
)
ONGOING = msgspec.structs.replace(
    EMPTY, state=TransactionState.ONGOING, partitions=frozenset({P0}), start_ms=20, client_version=2
)


def adds(producer_id: int = 7, producer_epoch: int = 3) -> AddPartitions:
    return AddPartitions(
        transactional_id=ID,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        partitions=frozenset({P1}),
        client_version=2,
    )


def verifies(producer_id: int = 7, producer_epoch: int = 3) -> VerifyPartitions:
    return VerifyPartitions(
        transactional_id=ID,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        partitions=frozenset({P0, P1}),
    )


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_the_first_partition_begins_the_transaction(state: TransactionState) -> None:
    begun = add_partitions(msgspec.structs.replace(EMPTY, state=state), adds(), is_pending=False, now_ms=50)

    assert isinstance(begun, Transaction)
    assert begun.state is TransactionState.ONGOING
    assert (begun.partitions, begun.start_ms, begun.client_version) == (frozenset({P1}), 50, 2)


def test_further_partitions_leave_the_start_as_it_is() -> None:
    grown = add_partitions(ONGOING, adds(), is_pending=False, now_ms=50)

    assert isinstance(grown, Transaction)
    assert (grown.partitions, grown.start_ms, grown.last_update_ms) == (frozenset({P0, P1}), 20, 50)


def test_a_partition_that_is_in_already_changes_nothing() -> None:
    ongoing = msgspec.structs.replace(ONGOING, partitions=frozenset({P0, P1}))

    assert add_partitions(ongoing, adds(), is_pending=False, now_ms=50) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("current", "asker", "error"),
    [
        (None, (7, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, (8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, (7, 2), ErrorCode.PRODUCER_FENCED),
        (ONGOING, (7, 4), ErrorCode.PRODUCER_FENCED),
        (
            msgspec.structs.replace(ONGOING, state=TransactionState.PREPARE_COMMIT),
            (7, 3),
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        # It may be on its way to the producer id that the asker has been told already.
        (
            msgspec.structs.replace(ONGOING, state=TransactionState.PREPARE_ABORT),
            (9, 0),
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
    ],
)
def test_only_the_producer_of_the_current_epoch_adds_or_verifies(
    current: Transaction | None, asker: tuple[int, int], error: ErrorCode
) -> None:
    assert add_partitions(current, adds(*asker), is_pending=False, now_ms=50) is error
    assert verify_partitions(current, verifies(*asker), is_pending=False) == VerifyPartitionsResult(error=error)


def test_nothing_is_decided_while_a_record_is_on_its_way() -> None:
    assert add_partitions(ONGOING, adds(), is_pending=True, now_ms=50) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert verify_partitions(ONGOING, verifies(), is_pending=True).error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_verification_tells_which_partitions_are_not_in_the_transaction() -> None:
    assert verify_partitions(ONGOING, verifies(), is_pending=False) == VerifyPartitionsResult(missing=frozenset({P1}))
    assert verify_partitions(EMPTY, verifies(), is_pending=False).missing == {P0, P1}
