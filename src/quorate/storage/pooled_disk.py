"""Files that are open only while they are used: as many at a time as the process has descriptors for.

A node has thousands of logs, and every one that was written to or read from would keep its file open. Here a file
that was not used for a while is closed, and opened again at its next use; its holder does not notice. Where the
process has no descriptor left all the same, half of the files are closed, and the spare descriptors are there for the
moment in which a file is opened.

A file that is closed here can be opened again only by its name. So before a name is removed, or given to another file,
the files that are still held under it are opened, and stay open until nobody holds them.
"""

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from quorate.kernel.ports import Buffer, Disk, DiskFile, VolumeSpace, is_out_of_descriptors

T = TypeVar("T")

#: So many may be open even where descriptors are short: the files that a few threads use at the same time.
FEWEST_OPEN = 8
#: How many files are looked at for one that may be closed, before any is taken.
_MOST_LOOKED_AT = 64
_ATTEMPTS = 3


class PooledFile:
    """A file that opens itself when it is used. Its methods hold the open file, so that it is never closed during a
    system call."""

    __slots__ = ("__weakref__", "_disk", "has_lost_its_name", "held", "is_dirty", "opened", "path", "was_used")

    def __init__(self, disk: "PooledDisk", path: str, opened: DiskFile) -> None:
        self._disk = disk
        self.path = path
        #: The pool knows it by this reference and does not keep it alive.
        self.held = weakref.ref(self, disk.forget)
        self.opened: DiskFile | None = opened
        #: Again since it was opened, and since the pool last looked for a file to close.
        self.was_used = False
        #: Whether there is something to sync. Such a file is closed last: Linux reports a failed write to the next one
        #: that opens and syncs the file, but only as long as the kernel keeps the file's inode in memory.
        self.is_dirty = False
        #: Never closed: it could not be opened again.
        self.has_lost_its_name = False

    def append(self, buffers: Sequence[Buffer]) -> None:
        self.is_dirty = self.was_used = True
        opened = self.opened
        (self._disk.open_again(self) if opened is None else opened).append(buffers)

    def read(self, position: int, length: int) -> bytes:
        return self._open().read(position, length)

    def size(self) -> int:
        return self._open().size()

    def truncate(self, size: int) -> None:
        self.is_dirty = True
        self._open().truncate(size)

    def sync(self) -> None:
        self.is_dirty = False
        try:
            self._open().sync()
        except OSError:
            self.is_dirty = True
            raise

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return self._open().send_to(socket, position, length)

    def close(self) -> None:
        self._disk.close(self)

    def _open(self) -> DiskFile:
        opened = self.opened
        if opened is None:
            return self._disk.open_again(self)
        self.was_used = True
        return opened


_Held = weakref.ref[PooledFile]


class PooledDisk:
    """The disk port with a limit for open files. Threads share it, and so may the nodes of one process."""

    def __init__(
        self,
        disk: Disk,
        most_open: int,
        *,
        spare: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_exhausted: Callable[[], None] = lambda: None,
    ) -> None:
        """``spare`` makes more descriptors available inside of its block. ``on_exhausted`` is called in any thread."""
        self._disk = disk
        self._most_open = max(FEWEST_OPEN, most_open)
        #: Lowered when the process has no descriptor left; rises again with each file that is opened.
        self._allowed = self._most_open
        self._spare = spare
        self._on_exhausted = on_exhausted
        # Reentrant: a file may be garbage collected in the middle of the pool's own work.
        self._lock = threading.RLock()
        #: A ring, as the CLOCK algorithm has it: the first one is looked at first.
        self._open: dict[_Held, None] = {}
        #: All files that are held, open or not, and the folders they are in.
        self._folders: dict[_Held, str] = {}
        self._by_folder: dict[str, dict[_Held, None]] = {}

    @property
    def open_count(self) -> int:
        return len(self._open)

    # Called by files.

    def open_again(self, file: PooledFile) -> DiskFile:
        with self._lock:
            opened = file.opened
            if opened is None:
                self._close_excess()
                opened = file.opened = self._with_descriptors(lambda: self._disk.open(file.path))
                self._open[file.held] = None
                file.was_used = False
                self._allowed = min(self._most_open, self._allowed + 1)
            return opened

    def close(self, file: PooledFile) -> None:
        with self._lock:
            opened, file.opened = file.opened, None
            self._open.pop(file.held, None)
        if opened is not None:
            opened.close()

    def forget(self, held: _Held) -> None:
        """Nobody holds the file any more."""
        with self._lock:
            self._open.pop(held, None)
            self._leave_folder(held)

    # Closing files to make room for others.

    def _close_excess(self) -> None:
        excess = len(self._open) + 1 - self._allowed
        if excess > 0:
            self._close_some(excess)

    def _close_some(self, count: int) -> None:
        """Close files that were not used since the last look; where there are too few, any that can be opened again."""
        for may_close in (_is_clean_and_idle, _is_clean_and_idle, _has_name):
            looked_at = 0
            while count > 0 and looked_at < min(_MOST_LOOKED_AT, len(self._open)):
                looked_at += 1
                held = next(iter(self._open))
                del self._open[held]
                file = held()
                if file is not None and not may_close(file):
                    file.was_used = False
                    self._open[held] = None  # To the end of the ring.
                    continue
                if file is not None:
                    file.opened = None
                count -= 1

    def _with_descriptors(self, work: Callable[[], T]) -> T:
        """Do work that needs a descriptor; where there is none, close files of the pool and retry."""
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except OSError as error:
                if not is_out_of_descriptors(error):
                    raise
            self._on_exhausted()
            with self._lock:
                self._allowed = max(FEWEST_OPEN, len(self._open) // 2)
                self._close_excess()
                with self._spare():
                    try:
                        return work()
                    except OSError as error:
                        if not is_out_of_descriptors(error):
                            raise
        return work()

    # Names.

    def _keep(self, path: str) -> None:
        """The name is about to be removed or reused: files that are held under it must not be opened by it again."""
        with self._lock:
            for held in list(self._by_folder.get(_folder_of(path), ())):
                file = held()
                if file is not None and file.path == path:
                    self._keep_open(file)

    def _keep_all(self, folder: str) -> None:
        with self._lock:
            for held in list(self._by_folder.get(folder, ())):
                file = held()
                if file is not None:
                    self._keep_open(file)

    def _keep_open(self, file: PooledFile) -> None:
        try:
            self.open_again(file)
        except FileNotFoundError:
            return
        file.has_lost_its_name = True

    def _renamed(self, source: str, target: str) -> None:
        """Files follow the renaming, of themselves or of their folder."""
        moved = [held for held in self._by_folder.get(_folder_of(source), ()) if _path_of(held) == source]
        for held in moved:
            self._move(held, target)
        for held in list(self._by_folder.get(source, ())):
            self._move(held, target + _path_of(held)[len(source) :])

    def _move(self, held: _Held, path: str) -> None:
        file = held()
        if file is not None and not file.has_lost_its_name:
            self._leave_folder(held)
            file.path = path
            self._enter_folder(held, path)

    def _enter_folder(self, held: _Held, path: str) -> None:
        folder = self._folders[held] = _folder_of(path)
        self._by_folder.setdefault(folder, {})[held] = None

    def _leave_folder(self, held: _Held) -> None:
        folder = self._folders.pop(held, "")
        others = self._by_folder.get(folder, {})
        others.pop(held, None)
        if not others:
            self._by_folder.pop(folder, None)

    # The disk port.

    def open(self, path: str, *, create: bool = False) -> PooledFile:
        with self._lock:
            self._close_excess()
            opened = self._with_descriptors(lambda: self._disk.open(path, create=create))
            file = PooledFile(self, path, opened)
            self._open[file.held] = None
            self._enter_folder(file.held, path)
            self._allowed = min(self._most_open, self._allowed + 1)
            return file

    def replace(self, path: str, content: Buffer) -> None:
        self._keep(path)
        self._with_descriptors(lambda: self._disk.replace(path, content))

    def rename(self, source: str, target: str) -> None:
        with self._lock:  # Nobody opens a file again by the old name meanwhile.
            self._keep(target)
            self._disk.rename(source, target)
            self._renamed(source, target)

    def remove(self, path: str) -> None:
        self._keep(path)
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        self._keep_all(path)
        self._with_descriptors(lambda: self._disk.remove_tree(path))

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def list_directory(self, path: str) -> list[str]:
        return self._with_descriptors(lambda: self._disk.list_directory(path))

    def sync_directory(self, path: str) -> None:
        self._with_descriptors(lambda: self._disk.sync_directory(path))

    def allocate(self, path: str, size_bytes: int) -> None:
        self._with_descriptors(lambda: self._disk.allocate(path, size_bytes))

    def space(self, path: str) -> VolumeSpace:
        return self._disk.space(path)


def _is_clean_and_idle(file: PooledFile) -> bool:
    return not (file.was_used or file.is_dirty or file.has_lost_its_name)


def _has_name(file: PooledFile) -> bool:
    return not file.has_lost_its_name


def _path_of(held: _Held) -> str:
    file = held()
    return "" if file is None else file.path


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
