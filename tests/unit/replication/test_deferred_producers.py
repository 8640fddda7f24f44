"""A batch that was refused for a reason of the moment: those behind it are deferred, and told the same."""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.records.batch import BatchHeader, read_header
from quorate.replication.producers import DeferredProducers
from quorate.storage.producer_state import ProducerStates
from tests.unit.replication.replicas import NOW_MS, produced

FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


def header(sequence: int, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(produced(sequence, producer_id, epoch))


def answer(
    deferred: DeferredProducers, header: BatchHeader, now_ms: int = NOW_MS, written: ProducerStates | None = None
) -> str | None:
    try:
        deferred.require_turn(header, now_ms, written or ProducerStates())
    except KafkaError as error:
        return str(error)
    return None


def test_what_comes_behind_a_refused_batch_gets_its_error_until_that_comes_again() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), FULL, NOW_MS)
    assert answer(deferred, header(4)) == str(FULL)
    assert answer(deferred, header(9), NOW_MS + 9_999) == str(FULL)
    assert answer(deferred, header(3)) is None
    deferred.written(header(3))
    assert answer(deferred, header(9)) is None


def test_a_producer_that_does_not_come_again_has_given_the_batch_up() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), FULL, NOW_MS)
    assert answer(deferred, header(4), NOW_MS + 10_000) is None


def test_others_do_not_wait_nor_what_was_sent_before_nor_a_new_epoch() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), FULL, NOW_MS)
    assert answer(deferred, header(4, producer_id=8)) is None
    assert answer(deferred, header(2)) is None
    assert answer(deferred, header(4, epoch=1)) is None


def test_numbers_begin_again_at_their_end() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(2**31 - 1), FULL, NOW_MS)
    assert answer(deferred, header(0)) == str(FULL)


def test_nobody_waits_for_a_batch_that_another_leader_has_taken() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), FULL, NOW_MS)
    written = ProducerStates()
    written.advance(header(2), Offset(2), NOW_MS)
    assert answer(deferred, header(4), written=written) == str(FULL)
    written.advance(header(3), Offset(3), NOW_MS)
    assert answer(deferred, header(4), written=written) is None


def testrefusals_are_forgotten_in_time() -> None:
    deferred = DeferredProducers()
    for number in range(1_000):
        deferred.refused(header(3, producer_id=number), FULL, NOW_MS + 1_000 * number)
    assert len(deferred.refusals) <= 200


def test_nothing_is_left_ofrefusals_that_have_passed() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), FULL, NOW_MS)
    deferred.drop_expired(NOW_MS + 9_999)
    assert deferred.refusals
    deferred.drop_expired(NOW_MS + 10_000)
    assert not deferred.refusals


def test_errors_that_do_not_pass_and_producers_that_do_not_number_put_nothing_off() -> None:
    deferred = DeferredProducers()
    deferred.refused(header(3), KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH), NOW_MS)
    deferred.refused(header(-1, producer_id=-1), FULL, NOW_MS)
    assert answer(deferred, header(4)) is None
    assert answer(deferred, header(-1, producer_id=-1)) is None
