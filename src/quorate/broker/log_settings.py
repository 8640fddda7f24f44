"""What a node's file says of its log: the table ``[log]``."""

from difflib import get_close_matches
from enum import StrEnum
from typing import Any

import msgspec

from quorate.kernel.errors import QuorateError

#: Less would be replaced faster than anybody could read it.
_FEWEST_BYTES = 64 * 1024
_MOST_KEPT_FILES = 1000


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    #: An object a line.
    JSON = "json"


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    #: Standard error where there is none; whoever takes that also keeps it from growing.
    file: str | None = None
    #: Of a file, before the next one is begun.
    max_bytes: int = 100 * 1024 * 1024
    #: Full files that are kept beside the one that is written.
    kept_files: int = 5

    def __post_init__(self) -> None:
        if self.file == "":
            raise QuorateError("[log] file must name a file")
        if self.max_bytes < _FEWEST_BYTES:
            raise QuorateError(f"[log] max_bytes must be {_FEWEST_BYTES} or more, not {self.max_bytes}")
        if not 0 <= self.kept_files <= _MOST_KEPT_FILES:
            raise QuorateError(f"[log] kept_files must be 0 to {_MOST_KEPT_FILES}, not {self.kept_files}")


_KEYS = LogSettings.__struct_fields__


def parse_log_settings(raw: Any) -> LogSettings:
    """The table as TOML has it; a mistake is one sentence."""
    if not isinstance(raw, dict):
        raise QuorateError('[log] is a table, such as level = "info"')
    for key in raw:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            raise QuorateError(f"[log] unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    for key, kind in (("level", LogLevel), ("format", LogFormat)):
        if key in raw and raw[key] not in list(kind):
            choices = ", ".join(repr(each.value) for each in kind)
            raise QuorateError(f"[log] {key} must be one of {choices}, not {raw[key]!r}")
    try:
        return msgspec.convert(raw, LogSettings)
    except msgspec.ValidationError as error:
        raise QuorateError(f"[log] {error}") from None
