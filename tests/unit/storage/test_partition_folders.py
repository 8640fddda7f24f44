"""The folders of partitions: their names, and logs that are removed or set aside at the same time."""

from random import Random
from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicId, TopicName
from quorate.kernel.ports import Disk
from quorate.storage.partition_folders import partition_folder, partition_index, remove_logs, set_aside
from tests.simulation.disk import SimulatedDisk, content_of


def test_a_folder_is_named_after_its_topic_and_partition() -> None:
    assert partition_folder("/data", TopicName("a-1"), PartitionIndex(12)) == "/data/a-1-12"
    assert partition_index("a-1-12") == 12


def test_the_name_of_the_metadata_log_leads_nowhere() -> None:
    with pytest.raises(KafkaError, match="reserved for the metadata log: delete this topic") as refused:
        partition_folder("/data", TopicName("__cluster_metadata"), PartitionIndex(0))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["meta.properties", "a-0-delete", "a-0.0f-stray", "a-", "-1", "a-1x", "a-٣"])
def test_other_names_are_not_those_of_a_partition(name: str) -> None:
    assert partition_index(name) is None


TOPIC_ID = TopicId(UUID(int=255))


def disk_with(*folders: str) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    for folder in folders:
        make_log(disk, folder, folder)
    return disk


def make_log(disk: SimulatedDisk, folder: str, content: str) -> None:
    disk.make_directory(f"/data/{folder}")
    disk.sync_directory("/")
    disk.sync_directory("/data")
    disk.replace(f"/data/{folder}/00000000000000000000.log", content.encode())


def test_a_log_set_aside_keeps_its_name_and_says_which_topic_it_was() -> None:
    disk = disk_with("orders-3")

    stray = set_aside(disk, "/data/orders-3", TOPIC_ID)
    disk.crash()

    assert stray == f"/data/orders-3.{TOPIC_ID.hex}-stray"
    assert disk.list_directory("/data") == [f"orders-3.{TOPIC_ID.hex}-stray"]


def test_an_earlier_log_set_aside_is_never_overwritten() -> None:
    disk = disk_with()
    kept = []
    for life in ("first", "second", "third"):
        make_log(disk, "orders-3", life)
        kept.append(set_aside(disk, "/data/orders-3", TOPIC_ID))

    contents = [content_of(disk, f"{stray}/00000000000000000000.log") for stray in kept]
    assert contents == [b"first", b"second", b"third"]
    assert all(stray.endswith("-stray") for stray in kept)


def test_the_longest_name_loses_its_end_but_not_its_partition() -> None:
    longest = "x" * 249
    disk = disk_with(f"{longest}-9999", f"{longest}-9998")

    strays = [set_aside(disk, f"/data/{longest}-{index}", TOPIC_ID) for index in (9999, 9998)]

    for stray, index in zip(strays, (9999, 9998), strict=True):
        name = stray.removeprefix("/data/")
        assert len(name) <= 255
        assert name.endswith(f"-{index}.{TOPIC_ID.hex}-stray")


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
