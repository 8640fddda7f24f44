"""Values in settings: words out of a fixed set, sizes as people write them (``10MB``, ``64 MiB``, ``1500``), durations.

A wrong word is told together with the right ones. ``Durability`` is the one such set that many rooms act on.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from quorate.kernel.errors import QuorateError

_DECIMAL = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS = _DECIMAL | _BINARY
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?\s*([A-Za-z]*)", re.ASCII)


class Durability(StrEnum):
    """When records count as committed: a setting that every node of a cluster has for itself."""

    #: Once they are on the disk (group-commit fdatasync).
    FSYNC = "fsync"
    #: Once the operating system has them, as with Apache Kafka's defaults.
    OS = "os"


def choices(kind: msgspec.inspect.Type) -> list[str]:
    """Those that a setting of this type may be; nothing where it is no choice."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return [word for each in kind.types for word in choices(each)]
    if isinstance(kind, msgspec.inspect.EnumType):
        return [str(member.value) for member in kind.cls]
    if isinstance(kind, msgspec.inspect.LiteralType):
        return [str(value) for value in kind.values]
    return []


def wrong_choice(value: Any, kind: msgspec.inspect.Type) -> str | None:
    """What is wrong with the value of such a setting, if it is one and anything is."""
    allowed = choices(kind)
    if not allowed or value is None or value in allowed:
        return None
    return f"{value!r} is not one of {', '.join(allowed)}"


def check_choices(raw: Mapping[str, Any], kind: type[msgspec.Struct], place: str = "") -> None:
    """All settings of one table. ``place`` is said before the key."""
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        problem = wrong_choice(raw.get(field.encode_name), field.type)
        if problem is not None:
            raise QuorateError(f"{place}{field.encode_name}: {problem}")


def parse_size(text: str) -> int:
    """In bytes. A thousand bytes are a kB, 1024 are a KiB."""
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[3].upper())
    if match is None or unit is None:
        raise QuorateError(f"{text!r} is not a size such as 10MB, 64MiB or 1048576")
    fraction = match[2] or ""
    size_bytes: int = int(match[1] + fraction) * unit // 10 ** len(fraction)
    return size_bytes


def parse_duration_s(text: str) -> int:
    """In seconds. A number alone is refused: nobody could tell seconds from milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    unit = None if match is None else _SECONDS.get(match[2])
    if match is None or unit is None:
        raise QuorateError(f"{text!r} is not a duration such as 90s, 10m or 1h")
    return int(match[1]) * unit
