import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, ProducerId
from quorate.records.errors import CorruptBatch
from quorate.storage.producer_snapshots import decode_snapshot, encode_snapshot
from quorate.storage.producer_state import ProducerStates
from tests.unit.storage.batches import NOW_MS, PRODUCER, batch_of, header_of, produced

LAST_SEQUENCE = 2**31 - 1


def states_after(*batches: bytes) -> ProducerStates:
    states = ProducerStates()
    offset = Offset(0)
    for batch in batches:
        header = header_of(batch)
        states.advance(header, offset, NOW_MS)
        offset = Offset(offset + header.last_offset_delta + 1)
    return states


def code_of(states: ProducerStates, batch: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as failure:
        states.check([header_of(batch)])
    return failure.value.code


def test_the_next_sequence_is_accepted() -> None:
    states = states_after(produced(0, 3))

    assert states.check([header_of(produced(3))]) is None


def test_a_retry_is_answered_with_the_first_attempt() -> None:
    states = states_after(produced(0, 3), produced(3, 2), produced(5))

    original = states.check([header_of(produced(3, 2))])

    assert original is not None
    assert (original.base_offset, original.last_offset, original.timestamp_ms) == (3, 4, NOW_MS)


def test_a_retry_is_known_for_five_batches_and_refused_after() -> None:
    states = states_after(*[produced(sequence) for sequence in range(6)])

    assert all(states.check([header_of(produced(sequence))]) for sequence in range(1, 6))
    assert code_of(states, produced(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [2, 4, 100])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    states = states_after(produced(0, 3))

    assert code_of(states, produced(sequence, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_around_to_zero() -> None:
    states = states_after(produced(LAST_SEQUENCE - 1, 2))

    assert states.check([header_of(produced(0))]) is None
    assert code_of(states, produced(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_wrap_around_inside() -> None:
    states = states_after(produced(LAST_SEQUENCE, 3))

    assert states.check([header_of(produced(2))]) is None
    assert states.check([header_of(produced(LAST_SEQUENCE, 3))]) is not None


def test_an_old_epoch_is_fenced() -> None:
    states = states_after(produced(0, epoch=4))

    assert code_of(states, produced(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    states = states_after(produced(0, 3, epoch=4))

    assert states.check([header_of(produced(0, epoch=5))]) is None
    assert code_of(states, produced(3, epoch=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = states_after(produced(0, epoch=0), produced(0, epoch=1))

    entry = states.get(PRODUCER)

    assert entry is not None
    assert len(entry.batches) == 1
    assert code_of(states, produced(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_that_is_not_known_may_start_anywhere() -> None:
    assert ProducerStates().check([header_of(produced(500))]) is None


def test_batches_of_one_append_are_judged_one_after_the_other() -> None:
    states = states_after(produced(0))

    assert states.check([header_of(produced(1)), header_of(produced(2))]) is None
    with pytest.raises(KafkaError):
        states.check([header_of(produced(1)), header_of(produced(3))])


def test_checking_changes_nothing() -> None:
    states = states_after(produced(0))

    states.check([header_of(produced(1))])

    assert states.check([header_of(produced(1))]) is None


def test_batches_without_a_producer_are_not_tracked() -> None:
    states = states_after(batch_of(b"value"))

    assert states.check([header_of(batch_of(b"value"))]) is None
    assert len(states) == 0


def test_producers_that_have_been_silent_for_long_are_forgotten() -> None:
    states = states_after(produced(0))
    states.expire(NOW_MS, expiration_ms=100)
    states.advance(header_of(produced(0, producer_id=ProducerId(8))), Offset(5), NOW_MS)
    states.expire(NOW_MS + 99, expiration_ms=100)
    assert len(states) == 2

    states.expire(NOW_MS + 100, expiration_ms=100)

    assert [producer_id for producer_id, _ in states] == [8]


def test_a_producer_of_old_data_is_not_taken_for_a_silent_one() -> None:
    states = ProducerStates()
    for number in range(3):
        states.advance(header_of(produced(number)), Offset(number), timestamp_ms=0)
        states.expire(NOW_MS + number * 1_000, expiration_ms=1_500)
    assert len(states) == 1


def test_a_snapshot_brings_back_epoch_and_last_batch() -> None:
    states = states_after(produced(0, 3, epoch=2), produced(3, 2, epoch=2))

    restored = decode_snapshot(encode_snapshot(states))

    original, again = states.get(PRODUCER), restored.get(PRODUCER)
    assert original is not None
    assert again is not None
    assert (again.epoch, again.last_timestamp_ms) == (2, NOW_MS)
    assert again.batches == original.batches[-1:]


def test_a_snapshot_keeps_a_sequence_that_wrapped_around() -> None:
    states = states_after(produced(LAST_SEQUENCE, 3))

    restored = decode_snapshot(encode_snapshot(states))

    assert restored.check([header_of(produced(LAST_SEQUENCE, 3))]) is not None


def test_a_damaged_snapshot_is_refused() -> None:
    good = encode_snapshot(states_after(produced(0)))

    for damaged in (b"", good[:-1], good + b"\0", good[:20] + b"\xff" + good[21:], b"\0\2" + good[2:]):
        with pytest.raises(CorruptBatch):
            decode_snapshot(damaged)
