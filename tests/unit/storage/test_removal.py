"""Logs that are deleted at the same time, whatever their names are."""

import pytest

from quorate.kernel.ports import Disk
from quorate.storage.partition_folders import remove_logs
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.test_set_aside import disk_with

LONGEST = "x" * 249
FOLDERS = [
    ("orders-0", "orders-1"),
    (f"{LONGEST}-0", f"{LONGEST}-1"),
    (f"{LONGEST[:-1]}y-10", f"{LONGEST[:-1]}z-10"),
]
IDS = ["short names", "partitions of the longest name", "two of the longest names"]


class _TwoWorkers:
    """A disk on which another worker removes a log too, at the moment when the first one moves its own away."""

    def __init__(self, disk: SimulatedDisk, other: str) -> None:
        self._disk = disk
        self._other = other

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def rename(self, source: str, target: str) -> None:
        with_other_half_done = _StopsAfterRename(self._disk)
        with pytest.raises(InterruptedError):
            remove_logs(_as_disk(with_other_half_done), [self._other])
        self._disk.rename(source, target)


class _StopsAfterRename:
    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def sync_directory(self, path: str) -> None:
        raise InterruptedError


def _as_disk(disk: object) -> Disk:
    return disk  # type: ignore[return-value]


@pytest.mark.parametrize("folders", FOLDERS, ids=IDS)
def test_the_removal_of_two_logs_at_once_does_not_meet_in_one_folder(folders: tuple[str, str]) -> None:
    disk = disk_with(*folders)
    first, second = (f"/data/{folder}" for folder in folders)

    remove_logs(_as_disk(_TwoWorkers(disk, second)), [first])

    (left,) = disk.list_directory("/data")
    assert left.endswith("-delete")
    assert len(left) <= 255
    assert disk.list_directory(f"/data/{left}") == ["00000000000000000000.log"]


@pytest.mark.parametrize("folders", FOLDERS, ids=IDS)
def test_logs_that_are_removed_together_are_all_gone(folders: tuple[str, str]) -> None:
    disk = disk_with(*folders)

    remove_logs(disk, [f"/data/{folder}" for folder in folders])

    assert disk.list_directory("/data") == []
