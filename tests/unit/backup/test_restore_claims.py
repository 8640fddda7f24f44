"""Of two that write one partition, the older one learns that it was replaced."""

import pytest

from quorate.backup.restore_claims import CHECK_INTERVAL_S, ClaimLost, PartitionClaim
from quorate.kernel.ids import PartitionIndex
from tests.unit.backup.batches import TOPIC
from tests.unit.backup.memory_storage import MemoryStorage


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def claim(storage: MemoryStorage, clock: Clock, partition: int = 0) -> PartitionClaim:
    return PartitionClaim(storage, "r-1", TOPIC, PartitionIndex(partition), now=clock)


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
