"""Of two that write one partition, the older one learns that it was replaced."""

from pathlib import Path

import pytest

from quorate.backup.errors import BackupError
from quorate.backup.objects.names import topic_label
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.restore.claims import CHECK_INTERVAL_S, ClaimLost, PartitionClaim, take_run_number
from quorate.kernel.ids import PartitionIndex
from tests.unit.backup.batches import TOPIC
from tests.unit.backup.memory_storage import MemoryStorage


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def claim(storage: ObjectStorage, clock: Clock, partition: int = 0, run_number: int = 1) -> PartitionClaim:
    return PartitionClaim(storage, "r-1", TOPIC, PartitionIndex(partition), run_number=run_number, now=clock)


def test_only_the_first_claim_need_not_wait() -> None:
    storage, clock = MemoryStorage(), Clock()

    assert claim(storage, clock).is_first
    assert not claim(storage, clock).is_first
    assert claim(storage, clock, partition=1).is_first


def test_older_claim_is_lost_within_the_interval_and_the_newest_is_not() -> None:
    storage, clock = MemoryStorage(), Clock()
    older = claim(storage, clock)
    newer = claim(storage, clock)
    clock.time += CHECK_INTERVAL_S

    newer.check()
    with pytest.raises(ClaimLost, match="let that one finish"):
        older.check()


def test_claim_two_behind_is_lost_too() -> None:
    storage, clock = MemoryStorage(), Clock()
    oldest, _, _ = (claim(storage, clock) for _ in range(3))

    with pytest.raises(ClaimLost):
        oldest.check_now()


def test_older_run_does_not_take_back_what_a_newer_one_has_claimed() -> None:
    storage, clock = MemoryStorage(), Clock()
    claim(storage, clock, run_number=1)
    newer = claim(storage, clock, run_number=2)

    with pytest.raises(ClaimLost, match="let that one finish"):
        claim(storage, clock, run_number=1)
    newer.check_now()
    claim(storage, clock, run_number=2).check_now()


def test_each_run_has_a_number_above_those_before_it() -> None:
    storage = MemoryStorage()

    assert [take_run_number(storage, restore) for restore in ("r-1", "r-1", "r-2", "r-1")] == [1, 2, 1, 3]


def test_what_a_killed_process_left_half_written_is_no_claim(tmp_path: Path) -> None:
    storage, clock = open_storage(StorageLocation(f"file://{tmp_path}")), Clock()
    claim(storage, clock)
    folder = tmp_path / "r-1" / "claims" / topic_label(TOPIC) / "0"
    (folder / "2.0123abcd.partial").write_bytes(b"")

    assert not claim(storage, clock).is_first
    assert sorted(each.name for each in folder.iterdir()) == ["1", "2", "2.0123abcd.partial"]


@pytest.mark.parametrize("content", [b"", b"abc", b"9" * 5000, b"-1", b"1\n", b"\xff"])
def test_a_claim_that_holds_no_number_is_one_sentence(content: bytes) -> None:
    storage, clock = MemoryStorage(), Clock()
    claim(storage, clock)
    (name,) = storage.contents
    storage.store(name, content)

    with pytest.raises(BackupError, match="is damaged: it holds no number of a run; delete it"):
        claim(storage, clock)
