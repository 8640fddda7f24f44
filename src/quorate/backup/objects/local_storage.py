"""Object storage in a local directory, durable when a call returns, and never outside of that directory.

An object is written beside its place as ``<name>.partial``, synced, and then linked or renamed into place; then the
folder is synced, and once per process all folders above it. A file left by a killed process keeps its suffix, so it is
found as an orphan and never taken for an object.

What lies in the directory may come from anybody. The storage's root is what the user named, links in it followed; from
there on every folder is opened inside the one before, and no symbolic link is followed. What is no regular file (a
link, a pipe, a device) is no object: it is not listed, and reading or writing it is an error.
"""

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from quorate.backup.errors import NameRefused, ObjectExists, ObjectNotFound, StorageError
from quorate.backup.objects.storage import MAX_WHOLE_OBJECT_BYTES, ObjectInfo, StorageLocation, object_name_parts
from quorate.kernel.ports import Buffer

PARTIAL_SUFFIX = ".partial"

# No object is deeper: what is there is somebody else's.
_MAX_DEPTH = 8

_REASONS = {
    errno.ENOSPC: "there is no space left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied, or the file system has no hard links",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is not a folder, or is a symbolic link, which is not followed",
    errno.ELOOP: "it is a symbolic link, which is not followed",
    errno.ENAMETOOLONG: "the file system takes no name of this length",
}
# What is wrong with one name or folder, and says nothing about others.
_OF_THE_NAME = {
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EILSEQ,
    errno.EINVAL,
}

_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
_FOLDER = _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # Opening a pipe would wait for its writer.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStorage:
    """``root`` is the part of the path that the user named, ``below`` the folders of the location inside of it."""

    def __init__(self, location: StorageLocation, root: str, below: Sequence[str] = ()) -> None:
        self.location = location
        self._root = root
        self._below = tuple(below)
        self._synced_folders: set[tuple[str, ...]] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return LocalStorage, (self.location, self._root, self._below)

    def url_of(self, name: str) -> str:
        return f"{self.location.url.rstrip('/')}/{name}" if name else self.location.url

    def check_reachable(self) -> None:
        if not os.path.isdir(self._root):
            raise StorageError(f"storage {self.location.url} cannot be used: there is no such folder")
        with self.errors_told("list", ""), self._folder(()) as folder, _listing(folder) as entries:
            next(entries, None)

    def put_if_absent(self, name: str, content: bytes) -> None:
        self._store(name, content, replace=False)

    def replace(self, name: str, content: bytes) -> None:
        self._store(name, content, replace=True)

    def open_upload(self, name: str) -> "LocalUpload":
        return LocalUpload(self, name, PARTIAL_SUFFIX)

    def read(self, name: str) -> bytes:
        with self.errors_told("read", name), self._opened(name) as file:
            size_bytes = os.fstat(file).st_size
            if size_bytes > MAX_WHOLE_OBJECT_BYTES:
                raise StorageError(f"{self.url_of(name)} has {size_bytes} bytes, more than any object of its kind")
            return bytes(_pread(file, 0, size_bytes))

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        with self.errors_told("read", name), self._opened(name) as file:
            return _pread(file, position, length)

    def info(self, name: str) -> ObjectInfo:
        *folders, last = object_name_parts(name)
        with self.errors_told("read", name), self._folder(folders) as folder:
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
        self.check_regular(name, status)
        return _info(name, status)

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        parts = object_name_parts(prefix.removesuffix("/")) if prefix else []
        with self.errors_told("list", prefix):
            try:
                with self._folder(parts) as folder:
                    yield from _objects_below(folder, "".join(f"{part}/" for part in parts), _MAX_DEPTH)
            except FileNotFoundError:
                return

    def folders(self) -> list[str]:
        with self.errors_told("list", ""), self._folder(()) as folder, _listing(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def delete(self, name: str) -> None:
        *folders, last = object_name_parts(name)
        with self.errors_told("delete", name), contextlib.suppress(FileNotFoundError), self._folder(folders) as folder:
            os.unlink(last, dir_fd=folder)
            _sync_folder(folder)

    @contextmanager
    def make_folder(self, parts: Sequence[str]) -> Iterator[int]:
        """The folder, open. Its way down from the root is durable, whoever made the parts of it."""
        if () not in self._synced_folders:
            os.makedirs(self._root, exist_ok=True)
            parent = os.path.dirname(self._root)
            if os.access(parent, os.R_OK):
                with _opened_folder(parent) as folder:
                    _sync_folder(folder)
            self._synced_folders.add(())
        with self._folder(parts, makes=True) as folder:
            yield folder

    @contextmanager
    def _folder(self, parts: Sequence[str], *, makes: bool = False) -> Iterator[int]:
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(_opened_folder(self._root))
            way: tuple[str, ...] = ()
            for part in (*self._below, *parts):
                way = (*way, part)
                if makes and way not in self._synced_folders:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                    with contextlib.suppress(PermissionError):  # One that may not be read cannot be synced.
                        _sync_folder(folder)
                    self._synced_folders.add(way)
                folder = opened.enter_context(_opened_folder(part, inside=folder))
            yield folder

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        *folders, last = object_name_parts(name)
        with self._folder(folders) as folder:
            file = os.open(last, _READ, dir_fd=folder)
        try:
            self.check_regular(name, os.fstat(file))
            yield file
        finally:
            os.close(file)

    def _store(self, name: str, content: bytes, *, replace: bool) -> None:
        upload = LocalUpload(self, name, f".{uuid.uuid4().hex}{PARTIAL_SUFFIX}")
        try:
            upload.write([content])
            upload.complete(replace=replace)
        finally:
            upload.abort()

    def check_regular(self, name: str, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise NameRefused(f"{self.url_of(name)} is not a regular file: it is neither read nor written")

    @contextmanager
    def errors_told(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise ObjectNotFound(f"{self.url_of(name)} does not exist") from None
        except FileExistsError:
            raise ObjectExists(f"{self.url_of(name)} exists already") from None
        except OSError as error:
            number = error.errno or 0
            reason = _REASONS.get(number, error.strerror or str(error))
            kind = NameRefused if number in _OF_THE_NAME else StorageError
            raise kind(f"cannot {action} {self.url_of(name)}: {reason}") from None


class LocalUpload:
    def __init__(self, storage: LocalStorage, name: str, partial_suffix: str) -> None:
        self._storage = storage
        self._name = name
        *folders, self._last = object_name_parts(name)
        self._partial = self._last + partial_suffix
        self._file: int | None = None
        self._opened = contextlib.ExitStack()
        with storage.errors_told("write", name), contextlib.ExitStack() as opened:
            self._folder = opened.enter_context(storage.make_folder(folders))
            self._file = os.open(self._partial, _CREATE, 0o644, dir_fd=self._folder)
            self._opened = opened.pop_all()

    def write(self, pieces: Iterable[Buffer]) -> None:
        assert self._file is not None
        with self._storage.errors_told("write", self._name):
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[os.write(self._file, view) :]

    def complete(self, *, replace: bool = True) -> None:
        assert self._file is not None
        folder = self._folder
        with self._storage.errors_told("write", self._name):
            os.fsync(self._file)
            if replace:
                os.rename(self._partial, self._last, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                self._link(folder)
            _sync_folder(folder)
        if not replace:
            self._remove_partial()
        self._close()

    def _link(self, folder: int) -> None:
        """What is there and no object is told apart: whoever waits for it to be readable would wait for ever."""
        try:
            os.link(self._partial, self._last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            self._storage.check_regular(self._name, os.stat(self._last, dir_fd=folder, follow_symlinks=False))
            raise

    def abort(self) -> None:
        if self._file is not None:
            self._remove_partial()
            self._close()

    def _remove_partial(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._partial, dir_fd=self._folder)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # Synced before, or given up.
                os.close(self._file)
            self._file = None
            self._opened.close()


@contextmanager
def _opened_folder(path: str, inside: int | None = None) -> Iterator[int]:
    """A link is followed where the path is one that the user named, and not ``inside`` of a storage."""
    flags = _FOLDER if inside is None else _FOLDER | os.O_NOFOLLOW
    folder = os.open(path, flags, dir_fd=inside)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _listing(folder: int) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """Entries with names that are text; an object has no other."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(readable) as entries:
            yield (entry for entry in entries if entry.name.isprintable())
    finally:
        os.close(readable)


def _objects_below(folder: int, prefix: str, depth: int) -> Iterator[ObjectInfo]:
    files: list[ObjectInfo] = []
    folders: list[str] = []
    with _listing(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # Deleted, or renamed, since the folder was read.
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    files.append(_info(prefix + entry.name, status))
                elif stat.S_ISDIR(status.st_mode) and depth > 1:
                    folders.append(entry.name)
    yield from sorted(files, key=lambda each: each.name)
    for name in sorted(folders):
        with contextlib.suppress(FileNotFoundError), _opened_folder(name, inside=folder) as inner:
            yield from _objects_below(inner, f"{prefix}{name}/", depth - 1)


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(name=name, size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


def _pread(file: int, position: int, length: int) -> Buffer:
    pieces = [os.pread(file, length, position)]
    done = len(pieces[0])
    while done < length and (piece := os.pread(file, length - done, position + done)):
        pieces.append(piece)
        done += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _sync_folder(folder: int) -> None:
    file = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(file)
    finally:
        os.close(file)
