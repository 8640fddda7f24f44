"""A log file that is replaced when it is full: ``node.log``, before it ``node.log.1``, and so on.

Writing never fails for whoever logs. What the disk does not take is counted, and told of when it takes lines again.
What else writes to standard error goes along, where that is the same file.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

from quorate.kernel.errors import QuorateError

_STANDARD_ERROR = 2
_OWNER_ONLY = 0o600


class LogFile(logging.Handler):
    def __init__(self, path: Path, max_bytes: int, kept_files: int) -> None:
        """``kept_files`` is how many full ones are kept beside the one that is written."""
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._descriptor = -1
        self._size_bytes = 0
        self._is_cut = False
        #: Lines that were lost since the last one that was written.
        self._lost = 0
        try:
            self._open()
        except OSError as error:
            raise QuorateError(f"the log file {path} cannot be written: {error.strerror}") from None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encoded(record)
        except Exception:
            self._lost += 1  # Whatever was to be logged cannot be told.
            return
        try:
            if self._descriptor < 0:
                self._open()
            if self._size_bytes and self._size_bytes + len(line) > self._max_bytes:
                self._rotate()
            if self._lost:
                self._write(self._encoded(_told_of(self._lost)))
                self._lost = 0
            self._write(line)
        except OSError:
            self._lost += 1

    def close(self) -> None:
        self.acquire()
        try:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
        finally:
            self.release()
        super().close()

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def _write(self, line: bytes) -> None:
        if self._is_cut:
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        self._size_bytes += written
        self._is_cut = written < len(line)
        if self._is_cut:
            raise OSError("the disk took a part of the line")

    def _rotate(self) -> None:
        """Where that fails, the file that is there is written on, and the next try is made when it has doubled."""
        former = self._descriptor
        goes_along = _is_same_file(former, _STANDARD_ERROR)
        self._size_bytes = 0
        try:
            for number in range(self._kept_files, 0, -1):
                with suppress(FileNotFoundError):
                    self._numbered(number - 1).rename(self._numbered(number))
            if not self._kept_files:
                self._path.unlink(missing_ok=True)
            self._open()
        except OSError:
            return
        if goes_along:
            os.dup2(self._descriptor, _STANDARD_ERROR)
        os.close(former)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, _OWNER_ONLY)
        self._size_bytes = os.fstat(self._descriptor).st_size
        self._is_cut = False

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


def _told_of(lost: int) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines lost count=%s", (lost,), None)


def _is_same_file(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
