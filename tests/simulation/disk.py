"""A disk in memory that behaves as badly as a real one may.

Until a file is synced, a crash may lose its new bytes, keep a part of them, leave zeros or garbage in their place, or
keep later ones and lose earlier ones. Until a folder is synced, any of the creations, removals and renames in it may be
lost; only those that touch the same name keep their order. A full disk takes a part of a write; a failing one refuses
to sync. ``crash`` then leaves what could have survived, chosen by the random source, and the disk can be used again.
"""

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import NoReturn

from quorate.kernel.ports import Buffer, VolumeSpace

_SECTOR_BYTES = 512
_TOTAL_BYTES = 1 << 40


class PowerCutError(BaseException):
    """The machine stops here. Not an ``Exception``: nothing that the code under test does may keep it from stopping."""


class _Content:
    """What an inode holds now, and how it came to that since it was last synced."""

    def __init__(self) -> None:
        self.now = bytearray()
        self.synced = bytearray()
        self.unsynced: list[bytes | int] = []  # Appended bytes, or the size that the file was cut to.
        self.allocated_bytes = 0  # Held back from others, and not stored: nobody reads them.

    def append(self, data: bytes) -> None:
        self.now += data
        self.unsynced.append(data)

    def truncate(self, size: int) -> None:
        _resize(self.now, size)
        self.unsynced.append(size)

    def sync(self, count: int | None = None) -> None:
        """Make the first ``count`` changes durable, or all."""
        for change in self.unsynced[:count]:
            _apply(self.synced, change)
        del self.unsynced[:count]

    def rot(self, position: int, mask: int) -> None:
        self.sync()
        self.now[position] ^= mask
        self.synced[position] ^= mask

    def crash(self, random: Random) -> None:
        survived = self.unsynced[: random.randint(0, len(self.unsynced))]
        lost = self.unsynced[len(survived) :]
        for change in survived:
            _apply(self.synced, change)
        torn = b"".join(change for change in lost if isinstance(change, bytes)) if _only_appends(lost) else b""
        self.synced += _tear(torn, random)
        self.now = bytearray(self.synced)
        self.unsynced.clear()


class _Folder:
    """The names in a folder, now and after the last sync, and the changes between."""

    def __init__(self) -> None:
        self.now: dict[str, _Content | _Folder] = {}
        self.synced: dict[str, _Content | _Folder] = {}
        self.unsynced: list[dict[str, _Content | _Folder | None]] = []  # Each is atomic; None removes the name.

    def change(self, changes: "dict[str, _Content | _Folder | None]") -> None:
        _apply_names(self.now, changes)
        self.unsynced.append(changes)

    def sync(self) -> None:
        self.synced = dict(self.now)
        self.unsynced.clear()

    def make_durable(self, name: str, content: _Content) -> None:
        """One name, atomically, and nothing else of the folder."""
        self.now[name] = self.synced[name] = content
        self.unsynced = [changes for changes in self.unsynced if name not in changes]

    def crash(self, random: Random) -> None:
        keep_probability = random.choice([0.0, 0.5, 0.9, 1.0])
        lost_names: set[str] = set()
        for changes in self.unsynced:
            if lost_names.isdisjoint(changes) and random.random() < keep_probability:
                _apply_names(self.synced, changes)
            else:
                lost_names.update(changes)
        self.now = dict(self.synced)
        self.unsynced.clear()
        for entry in self.now.values():
            entry.crash(random)


class SimulatedFile:
    def __init__(self, disk: "SimulatedDisk", content: _Content) -> None:
        self._disk = disk
        self._content = content

    def append(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        taken = data[: max(0, self._disk.free_bytes)]
        with self._disk.step():
            self._content.append(taken)
        self._disk.free_bytes -= len(taken)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._content.now[position : position + length])

    def size(self) -> int:
        return len(self._content.now) or self._content.allocated_bytes

    def truncate(self, size: int) -> None:
        with self._disk.step():
            self._content.truncate(size)

    def sync(self) -> None:
        # A sync promises nothing for what is written after it has begun.
        begun_with = len(self._content.unsynced)
        self._disk.while_syncing()
        with self._disk.step():
            self._disk.fail_if_told()
            self._content.sync(begun_with)

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return None

    def close(self) -> None:
        return


class SimulatedDisk:
    """Implements ``kernel.ports.Disk``. Paths are absolute."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._root = _Folder()
        self.free_bytes = _TOTAL_BYTES
        self.syncs_fail = False
        self.steps_until_power_cut: int | None = None
        #: After the power was cut: no change is taken until ``crash``.
        self.is_off = False
        #: Told of a cut at the moment of it.
        self.on_power_cut: Callable[[], None] = _nothing
        # Called as a file sync begins: what another thread does meanwhile. It sees the file before the sync.
        self.while_syncing: Callable[[], None] = _nothing

    def step(self) -> "_Step":
        """Around each change: where the power may be cut, before or after it."""
        return _Step(self, self._random)

    def fail_if_told(self) -> None:
        if self.syncs_fail:
            raise OSError(errno.EIO, "Input/output error")

    def cut_power(self) -> NoReturn:
        self.is_off = True
        self.on_power_cut()
        raise PowerCutError

    def crash(self) -> None:
        """Leave what a power cut at this moment could leave; the disk works again."""
        self.is_off = False
        self.steps_until_power_cut = None
        self.syncs_fail = False
        self.while_syncing = _nothing
        self._root.crash(self._random)

    def rot(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of what a file holds, also for those who have it open; no sync and no crash mends it."""
        folder, name = self._locate(path)
        content = folder.now[name]
        assert isinstance(content, _Content)
        content.rot(position, 1 << bit)

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        folder, name = self._locate(path)
        content = folder.now.get(name)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            content = _Content()
            with self.step():
                folder.change({name: content})
        assert isinstance(content, _Content)
        return SimulatedFile(self, content)

    def replace(self, path: str, content: Buffer) -> None:
        folder, name = self._locate(path)
        if self.free_bytes < len(content):
            raise OSError(errno.ENOSPC, "No space left on device")
        new = _Content()
        new.append(bytes(content))
        new.sync()
        with self.step():
            self.fail_if_told()
            folder.make_durable(name, new)

    def rename(self, source: str, target: str) -> None:
        folder, name = self._locate(source)
        target_folder, target_name = self._locate(target)
        assert folder is target_folder, "a rename stays in its folder"
        if name not in folder.now:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        in_the_way = folder.now.get(target_name)
        if isinstance(in_the_way, _Folder) and in_the_way.now:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", target)
        with self.step():
            folder.change({target_name: folder.now[name], name: None})

    def remove(self, path: str) -> None:
        folder, name = self._locate(path)
        if name in folder.now:
            content = folder.now[name]
            with self.step():
                folder.change({name: None})
            if isinstance(content, _Content):
                self.free_bytes += content.allocated_bytes

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def make_directory(self, path: str) -> None:
        folder = self._root
        for name in path.strip("/").split("/"):
            entry = folder.now.get(name)
            if entry is None:
                entry = _Folder()
                with self.step():
                    folder.change({name: entry})
            assert isinstance(entry, _Folder)
            folder = entry

    def list_directory(self, path: str) -> list[str]:
        folder = self._folder(path)
        return sorted(folder.now) if folder is not None else []

    def sync_directory(self, path: str) -> None:
        folder = self._folder(path)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        with self.step():
            self.fail_if_told()
            folder.sync()

    def allocate(self, path: str, size_bytes: int) -> None:
        if self.free_bytes < size_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        folder, name = self._locate(path)
        content = _Content()
        content.allocated_bytes = size_bytes
        with self.step():
            folder.change({name: content})
        self.free_bytes -= size_bytes

    def space(self, path: str) -> VolumeSpace:
        return VolumeSpace(_TOTAL_BYTES, max(0, self.free_bytes))

    def _locate(self, path: str) -> tuple[_Folder, str]:
        parent, _, name = path.rpartition("/")
        folder = self._folder(parent)
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return folder, name

    def _folder(self, path: str) -> _Folder | None:
        entry: _Content | _Folder | None = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            entry = entry.now.get(name) if isinstance(entry, _Folder) else None
        return entry if isinstance(entry, _Folder) else None


class _Step:
    """One change of the disk: counts down to the power cut, which comes just before or just after a change."""

    def __init__(self, disk: SimulatedDisk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self._cuts_after = False

    def __enter__(self) -> None:
        disk = self._disk
        if disk.is_off:
            raise PowerCutError
        if disk.steps_until_power_cut is None:
            return
        disk.steps_until_power_cut -= 1
        if disk.steps_until_power_cut > 0:
            return
        disk.steps_until_power_cut = None
        self._cuts_after = self._random.random() < 0.5
        if not self._cuts_after:
            disk.cut_power()

    def __exit__(self, *_: object) -> None:
        if self._cuts_after:
            self._disk.cut_power()


def content_of(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(0, file.size())


def _nothing() -> None:
    return


def _apply(content: bytearray, change: bytes | int) -> None:
    if isinstance(change, int):
        _resize(content, change)
    else:
        content += change


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _apply_names(names: "dict[str, _Content | _Folder]", changes: "dict[str, _Content | _Folder | None]") -> None:
    for name, entry in changes.items():
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry


def _only_appends(changes: list[bytes | int]) -> bool:
    return all(isinstance(change, bytes) for change in changes)


def _tear(lost: bytes, random: Random) -> bytes:
    """What may stand in a file where bytes were written and not synced."""
    kept = random.randint(0, len(lost))
    match random.choice(["prefix", "prefix", "zeros", "garbage", "holes"]):
        case "prefix":
            return lost[:kept]
        case "zeros":
            return lost[:kept] + bytes(random.randint(kept, len(lost)) - kept)
        case "garbage":
            return lost[:kept] + random.randbytes(random.randint(kept, len(lost)) - kept)
        case _:
            torn = bytearray(lost)
            for start in range(0, len(lost), _SECTOR_BYTES):
                if random.random() < 0.3:
                    torn[start : start + _SECTOR_BYTES] = bytes(len(torn[start : start + _SECTOR_BYTES]))
            return bytes(torn)
