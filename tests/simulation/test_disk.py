"""The disk of the simulations loses what it may lose, and nothing else."""

from random import Random

import pytest

from tests.simulation.disk import PowerCutError, SimulatedDisk

SEEDS = range(300)


def fresh(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def content_of(disk: SimulatedDisk, name: str) -> bytes:
    file = disk.open(f"/data/{name}")
    return file.read(0, file.size())


def test_synced_bytes_survive_and_others_may_be_lost_torn_or_garbled() -> None:
    left = set()
    for seed in SEEDS:
        disk = fresh(seed)
        file = disk.open("/data/log", create=True)
        file.append([b"kept"])
        file.sync()
        disk.sync_directory("/data")
        file.append([b"maybe"])
        disk.crash()
        content = content_of(disk, "log")
        assert content.startswith(b"kept")
        assert len(content) <= len(b"keptmaybe")
        left.add(content[4:])

    assert {b"", b"maybe", b"may"} <= left
    assert any(rest and not b"maybe".startswith(rest) for rest in left), "zeros or garbage"


def test_names_may_be_lost_until_their_folder_is_synced() -> None:
    left = set()
    for seed in SEEDS:
        disk = fresh(seed)
        disk.open("/data/old", create=True)
        disk.sync_directory("/data")
        disk.rename("/data/old", "/data/new")
        disk.open("/data/created", create=True)
        disk.crash()
        left.add(tuple(disk.list_directory("/data")))

    assert left == {("old",), ("new",), ("created", "old"), ("created", "new")}


def test_a_replaced_file_is_durable_at_once_and_nothing_else_with_it() -> None:
    left = set()
    for seed in SEEDS:
        disk = fresh(seed)
        disk.open("/data/other", create=True)
        disk.replace("/data/checkpoint", b"content")
        disk.crash()
        assert content_of(disk, "checkpoint") == b"content"
        left.add("other" in disk.list_directory("/data"))

    assert left == {True, False}


def test_a_cut_of_the_power_comes_before_or_after_a_step() -> None:
    sizes = set()
    for seed in range(20):
        disk = fresh(seed)
        file = disk.open("/data/log", create=True)
        disk.steps_until_power_cut = 2
        file.append([b"first"])
        with pytest.raises(PowerCutError):
            file.append([b"second"])
        sizes.add(file.size())

    assert sizes == {5, 11}


def test_a_full_disk_takes_a_part_of_a_write() -> None:
    disk = fresh(1)
    file = disk.open("/data/log", create=True)
    disk.free_bytes = 3

    with pytest.raises(OSError, match="No space left"):
        file.append([b"ab", b"cd"])

    assert file.read(0, 10) == b"abc"


def test_a_failed_sync_makes_nothing_durable() -> None:
    lost = False
    for seed in SEEDS:
        disk = fresh(seed)
        file = disk.open("/data/log", create=True)
        disk.sync_directory("/data")
        file.append([b"content"])
        disk.syncs_fail = True
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        disk.crash()
        lost = lost or content_of(disk, "log") == b""

    assert lost


def test_a_removed_file_stays_readable_for_those_who_hold_it() -> None:
    disk = fresh(1)
    file = disk.open("/data/log", create=True)
    file.append([b"content"])

    disk.remove("/data/log")

    assert file.read(0, 10) == b"content"
    with pytest.raises(FileNotFoundError):
        disk.open("/data/log")
