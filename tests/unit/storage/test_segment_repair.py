"""What another replica offers for a damaged range is taken only where it is what was there."""

import pytest

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.batch import patch_offset_and_epoch
from quorate.records.errors import CorruptBatch
from quorate.storage.damage import DamagedRange
from quorate.storage.segment_repair import Replacement
from tests.unit.storage.batches import batch_of

EPOCHS = [(LeaderEpoch(1), Offset(0)), (LeaderEpoch(4), Offset(12))]


def at(offset: int, epoch: int = 1, count: int = 1) -> bytes:
    batch = bytearray(batch_of(*[b"x"] * count))
    patch_offset_and_epoch(memoryview(batch), 0, Offset(offset), LeaderEpoch(epoch))
    return bytes(batch)


def wanted(first: int, end: int, *, may_have_holes: bool = False) -> Replacement:
    damaged = DamagedRange(start=0, end=100, first_offset=Offset(first), end_offset=Offset(end))
    return Replacement(damaged, EPOCHS, may_have_holes=may_have_holes)


def test_the_batches_of_the_range_are_taken_and_their_neighbours_are_not() -> None:
    replacement = wanted(10, 13)
    inside = at(10, count=2) + at(12, epoch=4)

    assert bytes(replacement.take(at(9) + inside + at(13, epoch=4))) == inside
    assert replacement.is_complete


def test_a_range_comes_in_several_answers() -> None:
    replacement = wanted(10, 12)
    assert bytes(replacement.take(at(10))) == at(10)
    assert not replacement.is_complete
    assert replacement.next_offset == 11
    assert bytes(replacement.take(at(11))) == at(11)
    assert replacement.is_complete


@pytest.mark.parametrize(
    "offered",
    [
        pytest.param(at(10, epoch=3) + at(11), id="written-in-another-epoch"),
        pytest.param(at(11), id="a-hole"),
        pytest.param(at(10) + at(10), id="twice"),
        pytest.param(at(10, count=5), id="beyond-the-range"),
        pytest.param(at(9, count=2) + at(11), id="from-before-the-range"),
        pytest.param(at(10)[:-1] + b"?" + at(11), id="damaged-there-too"),
        pytest.param(at(10)[:30], id="torn"),
        pytest.param(b"x" * 200, id="nonsense"),
    ],
)
def test_what_was_not_there_is_refused(offered: bytes) -> None:
    with pytest.raises(CorruptBatch):
        wanted(10, 12).take(offered)


def test_where_compaction_left_holes_less_may_come() -> None:
    replacement = wanted(10, 20, may_have_holes=True)
    replacement.take(at(11))
    replacement.end()
    assert replacement.is_complete

    missing = wanted(10, 20)
    with pytest.raises(CorruptBatch, match="the records from 10 on are not there"):
        missing.end()
