"""What a node's file says of its log and of what is audited: the tables ``[log]`` and ``[audit]``."""

from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from quorate.kernel.decoding import convert
from quorate.kernel.errors import QuorateError

#: Stands here since every command formats lines, and knows nothing of what is audited.
AUDIT_LOGGER: Final = "quorate.audit"
#: Less would be replaced faster than anybody could read it.
_FEWEST_BYTES = 64 * 1024
_MOST_KEPT_FILES = 1000


Settings = TypeVar("Settings", bound=msgspec.Struct)


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
        _check_file("log", self.file, self.max_bytes, self.kept_files)


class AuditThreshold(StrEnum):
    """From where on what is audited is told."""

    #: Also what is allowed, and who logs in.
    DEBUG = "debug"
    #: Denials.
    INFO = "info"
    #: Nothing.
    OFF = "off"


class AuditSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of what is audited. Without a file it is in the node's log, in the format that this has."""

    level: AuditThreshold | None = None
    format: LogFormat = LogFormat.TEXT
    file: str | None = None
    max_bytes: int = 100 * 1024 * 1024
    kept_files: int = 5

    def __post_init__(self) -> None:
        _check_file("audit", self.file, self.max_bytes, self.kept_files)


def _check_file(table: str, file: str | None, max_bytes: int, kept_files: int) -> None:
    if file == "":
        raise QuorateError(f"[{table}] file must name a file")
    if max_bytes < _FEWEST_BYTES:
        raise QuorateError(f"[{table}] max_bytes must be {_FEWEST_BYTES} or more, not {max_bytes}")
    if not 0 <= kept_files <= _MOST_KEPT_FILES:
        raise QuorateError(f"[{table}] kept_files must be 0 to {_MOST_KEPT_FILES}, not {kept_files}")


def parse_log_settings(raw: Any) -> LogSettings:
    """The table as TOML has it; a mistake is one sentence."""
    return _parse(raw, "log", LogSettings, LogLevel)


def parse_audit_settings(raw: Any, log: LogSettings) -> AuditSettings:
    """The table as TOML has it, beside that of the node's log."""
    settings = _parse(
        {"format": log.format.value, **raw} if isinstance(raw, dict) else raw, "audit", AuditSettings, AuditThreshold
    )
    if settings.file is None:
        for key in ("format", "max_bytes", "kept_files"):
            if key in raw:
                raise QuorateError(f"[audit] {key} is of a file: without one all goes into the node's log, see [log]")
    elif log.file is not None and Path(settings.file).absolute() == Path(log.file).absolute():
        raise QuorateError("[audit] file is that of [log]; leave it out, and what is audited is there")
    return settings


def _parse(raw: Any, table: str, kind: type[Settings], levels: type[StrEnum]) -> Settings:
    if not isinstance(raw, dict):
        raise QuorateError(f'[{table}] is a table, such as level = "info"')
    keys = kind.__struct_fields__
    for key in raw:
        if key not in keys:
            near = get_close_matches(key, keys, n=1)
            raise QuorateError(f"[{table}] unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    choices_of: dict[str, type[StrEnum]] = {"level": levels, "format": LogFormat}
    for key, choice in choices_of.items():
        if key in raw and raw[key] not in list(choice):
            choices = ", ".join(repr(each.value) for each in choice)
            raise QuorateError(f"[{table}] {key} must be one of {choices}, not {raw[key]!r}")
    try:
        return convert(raw, kind)
    except msgspec.ValidationError as error:
        raise QuorateError(f"[{table}] {error}") from None
