"""Disk space held back for writes that must not fail on a full disk: votes, the metadata log, checkpoints.

The reserve is a file of real blocks beside the logs. Where the volume turns out to be full, the file is removed and the
write is retried in the room that it had. Records of partitions get none of it.
"""

import posixpath
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from quorate.kernel.ports import Buffer, Disk, DiskFile, VolumeSpace, is_full

T = TypeVar("T")

_RESERVE_FILE = "reserve"


class Reserve:
    """The file itself. Threads share it."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{_RESERVE_FILE}"
        self._lock = threading.Lock()
        #: The bytes held back at present; 0 once the reserve was given up.
        self.held_bytes = 0

    def find(self) -> None:
        """On start: adopt the reserve of an earlier start; it may be needed at once."""
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            return
        self.held_bytes = file.size()
        file.close()

    def make(self, size_bytes: int) -> None:
        """Hold this much back from now on; ``OSError`` where there is no room for it."""
        with self._lock:
            if size_bytes == self.held_bytes:
                return
            self.held_bytes = 0
            self._disk.remove(self._path)
            try:
                self._disk.allocate(self._path, size_bytes)
            except OSError:
                self._disk.remove(self._path)
                raise
            self.held_bytes = size_bytes

    def give_up(self) -> bool:
        """Make room at once; returns whether there was anything to give."""
        with self._lock:
            had, self.held_bytes = self.held_bytes, 0
            self._disk.remove(self._path)
            return had > 0


class ReservedFile:
    """A file that may grow into the reserve."""

    __slots__ = ("_file", "_reserve")

    def __init__(self, file: DiskFile, reserve: Reserve) -> None:
        self._file = file
        self._reserve = reserve

    def append(self, buffers: Sequence[Buffer]) -> None:
        size = self._file.size()
        try:
            self._file.append(buffers)
        except OSError as error:
            if not is_full(error) or not self._reserve.give_up():
                raise
            self._file.truncate(size)  # A part of it may have been written.
            self._file.append(buffers)

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return self._file.send_to(socket, position, length)

    def close(self) -> None:
        self._file.close()


class ReservedDisk:
    """The disk port, with the reserve for all that needs it: every file but the segments of partitions.

    With ``covers_segments`` for these too, as the metadata log's own.
    """

    def __init__(self, disk: Disk, reserve: Reserve, *, covers_segments: bool = False) -> None:
        self._disk = disk
        self._reserve = reserve
        self._covers_segments = covers_segments

    def covering_segments(self) -> "ReservedDisk":
        return ReservedDisk(self._disk, self._reserve, covers_segments=True)

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        file = self._with_room(lambda: self._disk.open(path, create=create))
        return ReservedFile(file, self._reserve) if self._covers_segments or not _is_of_a_segment(path) else file

    def replace(self, path: str, content: Buffer) -> None:
        self._with_room(lambda: self._disk.replace(path, content))

    def rename(self, source: str, target: str) -> None:
        self._with_room(lambda: self._disk.rename(source, target))

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self._disk.remove_tree(path)

    def make_directory(self, path: str) -> None:
        self._with_room(lambda: self._disk.make_directory(path))

    def list_directory(self, path: str) -> list[str]:
        return self._disk.list_directory(path)

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(path)

    def allocate(self, path: str, size_bytes: int) -> None:
        self._disk.allocate(path, size_bytes)

    def space(self, path: str) -> VolumeSpace:
        return self._disk.space(path)

    def _with_room(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            if not is_full(error) or not self._reserve.give_up():
                raise
        return work()


def _is_of_a_segment(path: str) -> bool:
    """Their names begin with an offset."""
    return posixpath.basename(path)[:1].isdigit()
