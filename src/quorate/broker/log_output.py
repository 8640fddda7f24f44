"""Where a node's log goes, and how its lines look.

**One record is one line**, whatever a client, a peer or a file has said in it. What is put into a message may have come
from anybody. So every control character is escaped here, at the edge, and long texts are clipped; nobody who logs has
to think of it. Only a traceback has more lines, each of them indented.

**A log file is replaced when it is full**: ``node.log``, before it ``node.log.1``, and so on. Writing never fails for
whoever logs. What the disk does not take is counted, and told of when it takes lines again. What else writes to
standard error goes along, where that is the same file.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quorate.broker.log_settings import AUDIT_LOGGER, AuditSettings, AuditThreshold, LogFormat, LogSettings
from quorate.kernel.errors import MOST_CHARACTERS, QuorateError, clip

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
#: Of a message, and of a traceback.
MOST_OF_A_MESSAGE = 8000
_INDENT = "    "
#: What moves a terminal's cursor, ends a line for some reader, turns the direction of text, or is half a character.
_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
#: A ``key=%s`` of a message, or any other directive, so that they are counted alike.
_DIRECTIVE = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.]*)=)?%(?:%|[-#0 +]*\d*(?:\.\d+)?([a-zA-Z]))")
_STANDARD_ERROR = 2
_AUDIT_LEVELS = {
    AuditThreshold.DEBUG: logging.DEBUG,
    AuditThreshold.INFO: logging.INFO,
    AuditThreshold.OFF: logging.CRITICAL,
}
_OWNER_ONLY = 0o600


def begin_log(settings: LogSettings) -> None:
    """Have everything that this process logs go there. ``QuorateError`` where the file cannot be written."""
    handler = _handler(settings)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False  # A line that cannot be written is lost, and nothing else.
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    logging.getLogger("quorate").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.INFO))  # What libraries say in detail is not ours.


def begin_audit_log(settings: AuditSettings) -> None:
    """Have what is audited go to a file of its own where there is one. After ``begin_log``."""
    logger = logging.getLogger(AUDIT_LOGGER)
    for former in logger.handlers[:]:
        logger.removeHandler(former)
        former.close()
    logger.setLevel(_AUDIT_LEVELS[settings.level] if settings.level is not None else logging.NOTSET)
    if settings.level is None and settings.file is not None:
        logger.setLevel(logging.INFO)
    logger.propagate = settings.file is None
    if settings.file is not None:
        logger.addHandler(_handler(settings))


def _handler(settings: LogSettings | AuditSettings) -> logging.Handler:
    handler: logging.Handler = logging.StreamHandler()
    if settings.file is not None:
        handler = LogFile(Path(settings.file), settings.max_bytes, settings.kept_files)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else LineFormatter(TEXT_FORMAT))
    return handler


def escape(text: str) -> str:
    """On one line, and nothing in it that a terminal would obey."""
    return _UNPRINTABLE.sub(_escape_one, text)


class LineFormatter(logging.Formatter):
    """Text, for people and ``grep``."""

    def format(self, record: logging.LogRecord) -> str:
        # Other handlers get the same record: it is left as it is.
        shown = logging.makeLogRecord({**record.__dict__, "exc_text": None})
        shown.msg, shown.args = message_of(record), None
        return super().format(shown)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name that logging has given it
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """An object a line, for what collects logs. ``fields`` has the values of the message's ``key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
        }
        fields = record.__dict__.get("fields") or fields_of(record)
        if fields:
            shown["fields"] = fields
        if record.exc_info:
            shown["exception"] = clip(self.formatException(record.exc_info), MOST_OF_A_MESSAGE)
        return json.dumps(shown).replace("\x7f", "\\u007f")


def message_of(record: logging.LogRecord) -> str:
    """The message with its values, on one line."""
    try:
        message = str(record.msg) % _clipped(record.args) if record.args else str(record.msg)
    except (TypeError, ValueError, KeyError):
        message = f"{record.msg} {record.args}"  # Whoever logs made a mistake; the line still tells what it can.
    return escape(clip(message, MOST_OF_A_MESSAGE))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """By their keys, as far as the message has ``key=`` before its values."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    directives = [found for found in _DIRECTIVE.finditer(record.msg) if found[2]]
    if len(directives) != len(record.args):
        return {}
    values = zip(directives, record.args, strict=True)
    return {found[1]: _json_value(value) for found, value in values if found[1]}


def _json_value(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and value - value == 0:  # JSON has no infinity.
        return value
    return clip(str(value))


def _clipped(args: Any) -> Any:
    if isinstance(args, Mapping):
        return {key: _clip_value(value) for key, value in args.items()}
    return tuple(map(_clip_value, args))


def _clip_value(value: object) -> object:
    """Numbers and the like stay what they are, for the sake of their formats."""
    if isinstance(value, str | bytes | BaseException | list | tuple | dict | set | frozenset):
        text = str(value)
        return clip(text) if len(text) > MOST_CHARACTERS else value
    return value


def _indented(text: str) -> str:
    lines = clip(text, MOST_OF_A_MESSAGE).split("\n")
    return "\n".join(_INDENT + escape(line) for line in lines)


def _escape_one(found: re.Match[str]) -> str:
    character = found[0]
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


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
