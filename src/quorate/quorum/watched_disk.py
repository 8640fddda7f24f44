"""A disk port that remembers what was written, each file's size and CRC-32C, so that rot is found while it is open.

A file that was there before is taken as it is when it is watched first; whoever watches it has just checked it. Belongs
to one thread at a time, as what it is for.
"""

from collections.abc import Sequence

from quorate.kernel.checksum import crc32c
from quorate.kernel.ports import Buffer, Disk, DiskFile, VolumeSpace

_READ_BYTES = 1 << 20
_UNKNOWN = -1  # No CRC is this: the file counts as damaged.


class _Written:
    __slots__ = ("crc", "size")

    def __init__(self, size: int = 0, crc: int = 0) -> None:
        self.size = size
        self.crc = crc


class WatchedFile:
    __slots__ = ("_file", "_written")

    def __init__(self, file: DiskFile, written: _Written) -> None:
        self._file = file
        self._written = written

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._file.append(buffers)
        written = self._written
        for buffer in buffers:
            if written.crc != _UNKNOWN:
                written.crc = crc32c(buffer, written.crc)
            written.size += len(buffer)

    def truncate(self, size: int) -> None:
        """What is left is summed up anew. Where it has rotted before, that is found at the next check."""
        if size < self._written.size:
            is_sound = _matches(self._file, self._written)
            self._written.crc = _crc_of(self._file, size) if is_sound else _UNKNOWN
            self._written.size = size
        self._file.truncate(size)

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return self._file.send_to(socket, position, length)

    def close(self) -> None:
        self._file.close()


class WatchedDisk:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._written: dict[str, _Written] = {}

    @property
    def paths(self) -> list[str]:
        return sorted(self._written)

    def watch(self, path: str) -> None:
        """Remember the file as it is now, if there is one."""
        try:
            self.open(path).close()
        except FileNotFoundError:
            return

    def is_as_written(self, path: str) -> bool:
        """Also where it is not watched any more. What the disk cannot read is not as it was written."""
        written = self._written.get(path)
        if written is None:
            return True
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return False
        try:
            return _matches(file, written)
        finally:
            file.close()

    def open(self, path: str, *, create: bool = False) -> WatchedFile:
        file = self._disk.open(path, create=create)
        written = self._written.get(path)
        if written is None:
            written = self._written[path] = _as_found(file)
        return WatchedFile(file, written)

    def replace(self, path: str, content: Buffer) -> None:
        self._disk.replace(path, content)
        self._written[path] = _Written(len(content), crc32c(content))

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)
        self._forget(source)

    def remove(self, path: str) -> None:
        self._disk.remove(path)
        self._forget(path)

    def remove_tree(self, path: str) -> None:
        self._disk.remove_tree(path)
        self._forget(path)

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(path)

    def allocate(self, path: str, size_bytes: int) -> None:
        self._disk.allocate(path, size_bytes)

    def space(self, path: str) -> VolumeSpace:
        return self._disk.space(path)

    def _forget(self, path: str) -> None:
        for each in [each for each in self._written if each == path or each.startswith(f"{path}/")]:
            del self._written[each]


def _as_found(file: DiskFile) -> _Written:
    size = file.size()
    try:
        return _Written(size, _crc_of(file, size))
    except OSError:
        return _Written(size, _UNKNOWN)


def _matches(file: DiskFile, written: _Written) -> bool:
    try:
        return file.size() == written.size and _crc_of(file, written.size) == written.crc
    except OSError:
        return False


def _crc_of(file: DiskFile, size: int) -> int:
    crc = 0
    for position in range(0, size, _READ_BYTES):
        crc = crc32c(file.read(position, min(_READ_BYTES, size - position)), crc)
    return crc
