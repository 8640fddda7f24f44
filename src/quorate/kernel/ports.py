"""The ports to wall time, disks and the operator's files, and the bytes that go through them.

The real disk is ``storage.os_disk``; simulations hand in one that forgets what was not synced. Paths are plain strings
joined with ``/``. Failures are ``OSError``, as the operating system names them (``ENOSPC`` when the disk is full).
"""

import errno
from collections.abc import Sequence
from typing import Protocol

import msgspec

#: Bytes, whoever owns them. A memoryview is one of single bytes.
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """For times that are stored or compared with stored ones: record timestamps, retention, offset expiry.

    Timers belong to the event loop.
    """

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class OperatorFiles(Protocol):
    """Small files that an operator puts beside the settings, and may replace while the node runs."""

    def read(self, path: str) -> bytes: ...

    def read_private(self, path: str) -> bytes:
        """The same, of a secret. Raises ``QuorateError`` where others than the owner could read it."""
        ...


class VolumeSpace(msgspec.Struct, frozen=True):
    total_bytes: int
    #: For this process: what is reserved for the superuser does not count, where it is not one.
    free_bytes: int


class DiskFile(Protocol):
    """An open file that grows at its end. Reads name their position and never move anything."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers at the end. On failure the file may hold a part of them."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Up to ``length`` bytes; fewer only where the file ends."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the content durable (``fdatasync``). Blocks; safe to call from another thread than the appends."""
        ...

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        """Have the kernel send bytes to a socket; how many it took, 0 at the end of the file.

        None where it cannot: there is no real file behind.
        """
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """The few file operations that everything durable is built from."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and appending. Without ``create`` a missing file is ``FileNotFoundError``."""
        ...

    def replace(self, path: str, content: Buffer) -> None:
        """Put a whole small file in place, durably and atomically: readers see the old content or the new."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is not an error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder and all below it; a missing one is not an error."""
        ...

    def make_directory(self, path: str) -> None:
        """Make the folder and its parents; an existing one is not an error."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Names in the folder, sorted; empty where the folder is missing."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals inside the folder durable."""
        ...

    def allocate(self, path: str, size_bytes: int) -> None:
        """Make a file of real blocks, which reserves their space. An existing file keeps its content."""
        ...

    def space(self, path: str) -> VolumeSpace:
        """Of the volume that holds the folder."""
        ...


def is_full(error: OSError) -> bool:
    """Whether there was no room: unlike other failures this one passes, and what was on the disk is still there."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether no file could be opened for want of a descriptor: nothing was written, and it passes."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class FileRegion:
    """``length`` bytes of ``file`` from ``position``, which the kernel sends without passing them through Python.

    Has a length, as the buffers have that it stands among in an answer.
    """

    __slots__ = ("_length", "file", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, length: int) -> bytes:
        """The first bytes of the region."""
        return self.file.read(self.position, min(length, self._length))

    def advance(self, count: int) -> None:
        """Forget the first bytes: they have been sent."""
        self.position += count
        self._length -= count
