"""The disk port on a real POSIX file system.

``fsync`` discipline lives here and in the callers that name it: a file's content is durable after ``sync``, its name
after ``sync_directory``. Every call is a system call.
"""

import os
import shutil
from collections.abc import Sequence
from typing import ClassVar

from quorate.kernel.ports import Buffer, VolumeSpace

# The kernel refuses longer vectors (UIO_MAXIOV on Linux).
_MAX_BUFFERS_PER_WRITE = 1024
_TEMPORARY_SUFFIX = ".tmp"
#: Only the node may read its files, whatever the umask says.
_OWNER_ONLY = 0o600
_OWNER_ONLY_FOLDER = 0o700


class OsFile:
    """An open file. It closes itself once nothing refers to it, so a reader may outlive the removal of the file."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def append(self, buffers: Sequence[Buffer]) -> None:
        if len(buffers) > _MAX_BUFFERS_PER_WRITE:
            for first in range(0, len(buffers), _MAX_BUFFERS_PER_WRITE):
                self.append(buffers[first : first + _MAX_BUFFERS_PER_WRITE])
            return
        written = os.writev(self._descriptor, buffers)
        if written != sum(map(len, buffers)):
            self._append_rest(buffers, written)

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """A short write is rare (a signal, a disk that is nearly full): go on until all is written or it fails."""
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def read(self, position: int, length: int) -> bytes:
        content = os.pread(self._descriptor, length, position)
        if len(content) == length or not content:
            return content
        parts = [content]
        missing = length - len(content)
        while missing and (part := os.pread(self._descriptor, missing, position + length - missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return os.sendfile(socket, self._descriptor, position, length)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class OsDisk:
    """Files and folders of this machine. Holds no state, so one instance serves everything."""

    __slots__ = ()

    #: The type of open files; tests have their own.
    _file_type: ClassVar[type[OsFile]] = OsFile

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        return self._file_type(os.open(path, flags | os.O_CREAT if create else flags, _OWNER_ONLY))

    def replace(self, path: str, content: Buffer) -> None:
        temporary = path + _TEMPORARY_SUFFIX
        self.remove(temporary)
        file = self.open(temporary, create=True)
        try:
            file.append([content])
            file.sync()
        finally:
            file.close()
        os.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        if os.path.isdir(path):
            shutil.rmtree(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, _OWNER_ONLY_FOLDER, exist_ok=True)

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def allocate(self, path: str, size_bytes: int) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> VolumeSpace:
        found = os.statvfs(path or ".")
        return VolumeSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
