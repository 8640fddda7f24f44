"""Words out of a fixed set in settings: a wrong one is told together with the right ones."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quorate.kernel.errors import QuorateError


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
