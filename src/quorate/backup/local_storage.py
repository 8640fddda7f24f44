"""Object storage in a local directory, durable when a call returns.

An object is written beside its place as ``<name>.partial``, synced, and then linked or renamed into place; then the
folder is synced, and once per process all folders above it. A file left by a killed process keeps its suffix, so it is
found as an orphan and never taken for an object.
"""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from quorate.backup.errors import ObjectExists, ObjectNotFound, StorageError
from quorate.backup.storage import ObjectInfo, open_storage
from quorate.backup.storage_url import StorageLocation
from quorate.kernel.disk import Buffer

PARTIAL_SUFFIX = ".partial"

_REASONS = {
    errno.ENOSPC: "there is no space left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied, or the file system has no hard links",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is not a folder",
}


class LocalStorage:
    def __init__(self, location: StorageLocation, root: str) -> None:
        self.location = location
        self._root = root
        self._synced_folders: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return open_storage, (self.location,)

    def url_of(self, name: str) -> str:
        return f"{self.location.url.rstrip('/')}/{name}" if name else self.location.url

    def check_reachable(self) -> None:
        if not os.path.isdir(self._root):
            raise StorageError(f"storage {self.location.url} cannot be used: there is no such folder")
        with self.errors_told("list", ""):
            os.listdir(self._root)

    def put_if_absent(self, name: str, content: bytes) -> None:
        self._store(name, content, replace=False)

    def replace(self, name: str, content: bytes) -> None:
        self._store(name, content, replace=True)

    def open_upload(self, name: str) -> "LocalUpload":
        return LocalUpload(self, name, name + PARTIAL_SUFFIX)

    def read(self, name: str) -> bytes:
        with self.errors_told("read", name), open(self.path_of(name), "rb") as file:
            return file.read()

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        with self.errors_told("read", name), open(self.path_of(name), "rb", buffering=0) as file:
            pieces = [os.pread(file.fileno(), length, position)]
            done = len(pieces[0])
            while done < length and (piece := os.pread(file.fileno(), length - done, position + done)):
                pieces.append(piece)
                done += len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def info(self, name: str) -> ObjectInfo:
        with self.errors_told("read", name):
            status = os.stat(self.path_of(name))
        return ObjectInfo(name=name, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self.errors_told("list", prefix):
            for folder, folders, files in os.walk(self.path_of(prefix), onerror=_raise_unless_missing):
                folders.sort()
                for file in sorted(files):
                    name = os.path.relpath(os.path.join(folder, file), self._root)
                    with contextlib.suppress(ObjectNotFound):  # Deleted, or renamed, since the folder was read.
                        yield self.info(name)

    def folders(self) -> list[str]:
        with self.errors_told("list", ""), os.scandir(self._root) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def delete(self, name: str) -> None:
        with self.errors_told("delete", name):
            path = self.path_of(name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                _sync_folder(os.path.dirname(path))

    def path_of(self, name: str) -> str:
        return os.path.join(self._root, name)

    def make_folder(self, folder: str) -> None:
        """Make the folder and make its way down from the root durable, whoever made the parts of it."""
        if folder in self._synced_folders:
            return
        parent = os.path.dirname(folder)
        if folder not in (self._root, parent):
            self.make_folder(parent)
        os.makedirs(folder, exist_ok=True)
        if os.access(parent, os.R_OK):
            _sync_folder(parent)
        self._synced_folders.add(folder)

    def _store(self, name: str, content: bytes, *, replace: bool) -> None:
        upload = LocalUpload(self, name, f"{name}.{uuid.uuid4().hex}{PARTIAL_SUFFIX}")
        try:
            upload.write([content])
            upload.complete(replace=replace)
        finally:
            upload.abort()

    @contextmanager
    def errors_told(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise ObjectNotFound(f"{self.url_of(name)} does not exist") from None
        except FileExistsError:
            raise ObjectExists(f"{self.url_of(name)} exists already") from None
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"cannot {action} {self.url_of(name)}: {reason}") from None


class LocalUpload:
    def __init__(self, storage: LocalStorage, name: str, partial_name: str) -> None:
        self._storage = storage
        self._name = name
        self._path = storage.path_of(name)
        self._partial_path = storage.path_of(partial_name)
        self._file: int | None = None
        with storage.errors_told("write", name):
            storage.make_folder(os.path.dirname(self._path))
            self._file = os.open(self._partial_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, pieces: Iterable[Buffer]) -> None:
        assert self._file is not None
        with self._storage.errors_told("write", self._name):
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(self._file, view) :]

    def complete(self, *, replace: bool = True) -> None:
        assert self._file is not None
        with self._storage.errors_told("write", self._name):
            os.fsync(self._file)
            if replace:
                os.rename(self._partial_path, self._path)
            else:
                os.link(self._partial_path, self._path)
            _sync_folder(os.path.dirname(self._path))
        self._close()

    def abort(self) -> None:
        self._close()
        with contextlib.suppress(OSError):
            os.unlink(self._partial_path)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # Synced before, or given up.
                os.close(self._file)
            self._file = None


def _sync_folder(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
