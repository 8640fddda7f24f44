"""Where warm Sparks live: a folder for each, for their user alone, on this machine's own temporary disk. Does I/O.

The keeper holds a lock as long as it lives, listens on a Unix socket, and takes whoever shows the token. What it knows
its processes by lies beside it, so that one that hangs can be ended: a pid counts only together with the moment at
which its process began.

A place is named by all that the processes in it depend on: commands that agree in it share one. A job of ours carries
the environment, the folder and the umask of its command to the workers, so these matter only by what has its effect
when a process starts. Of a query they matter as they are: Spark's own code reads them.
"""

import fcntl
import hashlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

import quorate
from quorate.backup.spark.session.settings import SparkSettings, effective_master
from quorate.kernel.decoding import decode_json
from quorate.kernel.errors import QuorateError

_PREFIX: Final = "warm-"
_DOOMED: Final = "ended-"
_PRIVATE: Final = 0o700
_LONGEST_ADDRESS: Final = 100  # In bytes; the system's own limit is 108, with an end.
_BACKLOG: Final = 64
_AT_THE_START = (
    *("PYTHON", "PYSPARK", "SPARK", "HADOOP", "QUORATE"),
    *("JAVA", "JDK", "_JAVA", "LD_", "MALLOC", "GLIBC", "LC_", "LANG", "TZ"),
)
# Every shell sets them anew.
_OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "TERM", "COLUMNS", "LINES"})


class PlaceUnusable(QuorateError):
    """There can be no warm Spark there; the message says why."""


class Process(msgspec.Struct, frozen=True):
    pid: int
    began: str  # As the kernel counts; empty where it does not say, and then nobody is ever killed.


class Processes(msgspec.Struct, frozen=True):
    keeper: Process
    java: Process | None


class WarmPlace:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    @property
    def name(self) -> str:
        return self.folder.name.removeprefix(_PREFIX)

    @property
    def spark_folder(self) -> Path:
        return self.folder / "spark"

    @property
    def socket_path(self) -> Path:
        return self.folder / "socket"

    def make(self) -> None:
        for folder in (self.folder.parent, self.folder):
            make_private(folder)

    def lock(self) -> bool:
        """For as long as this process lives, or until ``unlock``; False where another one has it."""
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        if not self.is_still_there():  # It was taken away between two of these lines.
            self.unlock()
            return False
        return True

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_still_there(self) -> bool:
        """Whether somebody who comes now would find the one that has the lock."""
        with suppress(OSError):
            return self._lock is not None and os.path.samestat(os.fstat(self._lock), os.stat(self.folder / "lock"))
        return False

    def clear(self) -> None:
        """What an earlier keeper, which was killed, has left. Only for the one that has the lock."""
        for name in ("socket", "token", "processes"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.spark_folder, ignore_errors=True)
        self.spark_folder.mkdir(_PRIVATE)

    def write_token(self) -> str:
        token = secrets.token_hex(32)
        self._write("token", token.encode())
        return token

    def token(self) -> str:
        return (self.folder / "token").read_text()

    def note(self, keeper: int, java: int | None) -> None:
        processes = Processes(_process(keeper), None if java is None else _process(java))
        self._write("processes", msgspec.json.encode(processes))

    def listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._address() as address:
                listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def dial(self, timeout_s: float) -> socket.socket:
        """``OSError`` where nobody listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            with self._address() as address:
                connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection

    def keeper_pid(self) -> int | None:
        found = self._processes()
        return found.keeper.pid if found is not None and _is_alive(found.keeper) else None

    def kill(self) -> None:
        """The processes that are known to be this one's, whatever they are at."""
        found = self._processes()
        for process in () if found is None else (found.keeper, found.java):
            if process is not None and _is_alive(process):
                with suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)

    def _processes(self) -> Processes | None:
        with suppress(OSError, msgspec.MsgspecError):
            return decode_json((self.folder / "processes").read_bytes(), Processes)
        return None

    def remove(self) -> None:
        """Only for the one that has the lock. Whoever comes meanwhile makes a folder of its own."""
        doomed = self.folder.with_name(f"{_DOOMED}{self.name}-{os.getpid()}")
        with suppress(OSError):
            self.folder.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def is_empty(self) -> bool:
        """Whether no keeper lives there."""
        with suppress(OSError):
            if not self.lock():
                return False
            self.unlock()
        return True

    def _write(self, name: str, content: bytes) -> None:
        draft = self.folder / f"{name}.draft"
        draft.unlink(missing_ok=True)
        with closing(os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")) as file:
            file.write(content)
        draft.replace(self.folder / name)

    @contextmanager
    def _address(self) -> Iterator[str]:
        """A socket's name may be no longer than about 100 bytes: a deep folder is named by a descriptor of it."""
        if len(os.fsencode(self.socket_path)) <= _LONGEST_ADDRESS:
            yield str(self.socket_path)
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}/{self.socket_path.name}"
        finally:
            os.close(folder)


def warm_place(name: str) -> WarmPlace:
    return WarmPlace(_base() / f"{_PREFIX}{name}")


def warm_places() -> list[WarmPlace]:
    """All of this user's; those of another one, who has the folder's name, are none."""
    base = _base()
    with suppress(OSError, PlaceUnusable):
        _check_private(base)
        return [WarmPlace(folder) for folder in sorted(base.glob(f"{_PREFIX}*")) if folder.is_dir()]
    return []


def sweep() -> None:
    """Take away what keepers that were killed have left."""
    for place in warm_places():
        with suppress(OSError):
            if place.lock():
                place.remove()
                place.unlock()


def make_private(folder: Path) -> None:
    try:
        with suppress(FileExistsError):
            folder.mkdir(_PRIVATE)
        _check_private(folder)
    except OSError as error:
        raise PlaceUnusable(f"{folder}: {error.strerror}") from None


def _check_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceUnusable(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise PlaceUnusable(f"{folder} belongs to another user; TMPDIR may name another place")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PlaceUnusable(f"{folder} is open to others: chmod 700 {folder}")


def _base() -> Path:
    return Path(tempfile.gettempdir()) / f"quorate-{os.geteuid()}"


def _is_alive(process: Process) -> bool:
    return bool(process.began) and _process(process.pid) == process


def _process(pid: int) -> Process:
    try:
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except (OSError, IndexError):
        began = ""
    return Process(pid, began)


def identity(settings: SparkSettings, java: Path, environment: Mapping[str, str], folder: str, umask: int) -> str:
    parts = [
        quorate.__version__,
        *_package_state(Path(quorate.__file__).parent),
        _pyspark_version(),
        sys.executable,
        sys.version,
        str(java.resolve()),
        _release(java),
        effective_master(settings.master),
        str(settings.rows_pass_jvm),
        *(f"{name}={value}" for name, value in sorted(settings.conf.items())),
        "environment",
        *(f"{name}={environment[name]}" for name in sorted(environment) if _matters(name, settings)),
    ]
    if settings.rows_pass_jvm:
        parts += [folder, oct(umask)]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _matters(name: str, settings: SparkSettings) -> bool:
    if settings.rows_pass_jvm:
        return name not in _OF_THE_SHELL
    return name.startswith(_AT_THE_START)


def _package_state(package: Path) -> Iterator[str]:
    """The version alone does not tell an edited checkout from what it was before."""
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                state = os.stat(os.path.join(folder, name))
                yield f"{folder}/{name} {state.st_size} {state.st_mtime_ns}"


def _pyspark_version() -> str:
    """Read, not imported: that would take longer than all else here."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return ""
    version = Path(found.origin).parent / "version.py"
    return f"{version} {version.read_text() if version.is_file() else ''}"


def _release(java: Path) -> str:
    try:
        return (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return ""
