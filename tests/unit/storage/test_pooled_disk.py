"""Files that are closed while nobody uses them, and look as if they were always open."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from quorate.kernel.errors import KafkaError
from quorate.kernel.ports import Disk, DiskFile
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.os_disk import OsDisk
from quorate.storage.pooled_disk import FEWEST_OPEN, PooledDisk, PooledFile
from tests.unit.storage.batches import append_values, values_in

SMALL = FEWEST_OPEN


def open_below(folder: Path) -> int:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(str(folder)) for link in links if os.path.lexists(link))


def files_in(disk: PooledDisk, folder: Path, count: int) -> list[PooledFile]:
    files = [disk.open(f"{folder}/{number}", create=True) for number in range(count)]
    for number, file in enumerate(files):
        file.append([b"%d" % number])
    return files


def test_more_files_are_written_and_read_than_may_be_open(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    files = files_in(disk, tmp_path, 20 * SMALL)

    for number, file in enumerate(files):
        file.append([b"!"])
        assert file.read(0, 9) == b"%d!" % number
        file.truncate(1)
        file.sync()
        assert file.size() == 1
        assert open_below(tmp_path) == disk.open_count <= SMALL


def test_a_file_in_steady_use_stays_open_while_others_come_and_go(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    steady, *others = files_in(disk, tmp_path, 10 * SMALL)
    for file in (*others, steady, steady):
        file.sync()
    opened = steady.opened

    for file in others:
        file.sync()
        steady.size()

    assert opened is not None
    assert steady.opened is opened


def test_what_is_not_synced_is_closed_last(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    files = files_in(disk, tmp_path, SMALL)
    unsynced, *others = files
    for file in others:
        file.sync()

    files_in(disk, tmp_path / "..", SMALL - 1)

    assert unsynced.opened is not None


def test_a_file_that_nobody_holds_leaves_the_pool(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    files = files_in(disk, tmp_path, 3 * SMALL)

    del files

    assert disk.open_count == open_below(tmp_path) == 0


def test_a_closed_file_is_still_there_for_its_reader_when_its_name_is_gone(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    removed, replaced, overwritten, *_others = held = files_in(disk, tmp_path, 5 * SMALL)
    assert removed.opened is replaced.opened is overwritten.opened is None

    disk.remove(removed.path)
    disk.replace(replaced.path, b"new")
    disk.rename(held[-1].path, overwritten.path)
    files_in(disk, tmp_path / "..", 3 * SMALL)

    assert [file.read(0, 9) for file in (removed, replaced, overwritten, held[-1])] == [b"0", b"1", b"2", b"39"]
    assert disk.open(replaced.path).read(0, 9) == b"new"


def test_files_go_with_their_folder_and_outlive_it(tmp_path: Path) -> None:
    disk = PooledDisk(OsDisk(), SMALL)
    (tmp_path / "a").mkdir()
    files = files_in(disk, tmp_path / "a", 3 * SMALL)

    disk.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    assert [file.read(0, 9) for file in files] == [b"%d" % number for number in range(3 * SMALL)]

    disk.remove_tree(f"{tmp_path}/b")
    assert [file.read(0, 9) for file in files] == [b"%d" % number for number in range(3 * SMALL)]


@pytest.mark.parametrize("seed", range(20))
def test_it_does_what_a_disk_does_that_keeps_every_file_open(tmp_path: Path, seed: int) -> None:
    """The same random calls on both: the same content, for whoever holds a file and under every name."""
    random = Random(seed)
    plain: Disk = OsDisk()
    pooled: Disk = PooledDisk(OsDisk(), SMALL)
    roots = [f"{tmp_path}/plain", f"{tmp_path}/pooled"]
    names = [f"{folder}/{number}" for folder in ("a", "b") for number in range(8)]
    held: list[tuple[DiskFile, DiskFile]] = []
    for disk, root in zip((plain, pooled), roots, strict=True):
        for folder in ("a", "b"):
            disk.make_directory(f"{root}/{folder}")
    for step in range(400):
        name, other = random.choice(names), random.choice(names)
        match random.randrange(8):
            case 0 | 1 | 2:
                held.append(
                    (plain.open(f"{roots[0]}/{name}", create=True), pooled.open(f"{roots[1]}/{name}", create=True))
                )
            case 3:
                plain.remove(f"{roots[0]}/{name}")
                pooled.remove(f"{roots[1]}/{name}")
            case 4 if os.path.exists(f"{roots[0]}/{name}"):
                plain.rename(f"{roots[0]}/{name}", f"{roots[0]}/{other}")
                pooled.rename(f"{roots[1]}/{name}", f"{roots[1]}/{other}")
            case 5:
                plain.replace(f"{roots[0]}/{name}", b"%d" % step)
                pooled.replace(f"{roots[1]}/{name}", b"%d" % step)
            case 6 if held:
                held.pop(random.randrange(len(held)))
            case 7 if step % 10 == 0:
                for disk, root in zip((plain, pooled), roots, strict=True):
                    disk.rename(f"{root}/a", f"{root}/c")
                    disk.remove_tree(f"{root}/c")
                    disk.make_directory(f"{root}/a")
        for one, same in random.sample(held, min(3, len(held))):
            one.append([b"%d," % step])
            same.append([b"%d," % step])
        for one, same in held:
            assert one.read(0, 1 << 20) == same.read(0, 1 << 20)
    assert [path.name for path in Path(roots[0]).rglob("*")] == [path.name for path in Path(roots[1]).rglob("*")]


class Crowded(OsDisk):
    """A process that has only so many descriptors for files."""

    __slots__ = ("folder", "limit", "spare")

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit, self.spare = folder, limit, 0

    def require(self) -> None:
        if open_below(self.folder) >= self.limit + self.spare:
            raise OSError(errno.EMFILE, "Too many open files")

    def open(self, path: str, *, create: bool = False) -> DiskFile:  # type: ignore[override]
        self.require()
        return super().open(path, create=create)

    def sync_directory(self, path: str) -> None:
        self.require()
        super().sync_directory(path)

    @contextmanager
    def spared(self) -> Iterator[None]:
        self.spare = 1
        yield
        self.spare = 0


def test_a_process_without_descriptors_closes_files_and_goes_on(tmp_path: Path) -> None:
    crowded = Crowded(tmp_path, limit=2 * SMALL)
    told: list[None] = []
    disk = PooledDisk(crowded, 100 * SMALL, on_exhausted=lambda: told.append(None))

    files = files_in(disk, tmp_path, 5 * SMALL)

    assert [file.read(0, 9) for file in files] == [b"%d" % number for number in range(5 * SMALL)]
    assert told
    disk.replace(f"{tmp_path}/0", b"new")
    disk.sync_directory(str(tmp_path))


def test_the_spare_descriptors_are_there_where_no_file_can_be_closed(tmp_path: Path) -> None:
    crowded = Crowded(tmp_path, limit=0)

    with pytest.raises(OSError, match="Too many open files"):
        PooledDisk(crowded, SMALL).open(f"{tmp_path}/file", create=True)

    disk = PooledDisk(crowded, SMALL, spare=crowded.spared)
    disk.replace(f"{tmp_path}/file", b"content")
    assert disk.open(f"{tmp_path}/file").read(0, 9) == b"content"


def test_a_log_that_finds_no_descriptor_loses_nothing_and_stays_usable(tmp_path: Path) -> None:
    crowded = Crowded(tmp_path, limit=SMALL)
    log = PartitionLog.open(crowded, f"{tmp_path}/topic-0", LogConfig())
    append_values(log, b"a")
    log.sync()
    log.release()

    crowded.limit = 0
    with pytest.raises(KafkaError, match="Too many open files"):
        append_values(log, b"b")
    with pytest.raises(KafkaError, match="Too many open files"):
        log.sync()

    crowded.limit = SMALL
    append_values(log, b"c")
    log.sync()
    assert log.is_usable
    assert values_in(log) == [b"a", b"c"]
    assert log.synced_end_offset == 2
