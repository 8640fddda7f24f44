"""A log that nobody knows is kept under another name, whatever else was kept there before."""

from random import Random
from uuid import UUID

from quorate.kernel.ids import TopicId
from quorate.storage.partition_folders import set_aside
from tests.simulation.disk import SimulatedDisk, content_of

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


def test_it_keeps_its_name_and_says_which_topic_it_was() -> None:
    disk = disk_with("orders-3")

    stray = set_aside(disk, "/data/orders-3", TOPIC_ID)
    disk.crash()

    assert stray == f"/data/orders-3.{TOPIC_ID.hex}-stray"
    assert disk.list_directory("/data") == [f"orders-3.{TOPIC_ID.hex}-stray"]


def test_an_earlier_one_is_never_overwritten() -> None:
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
