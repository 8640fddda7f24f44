"""Shared by the specialisation of decoders and encoders: lines of source, names in it, widths of types."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from struct import Struct as Format
from typing import Any, Final

from quorate.protocol.schema import Field, Message, WireType, fields_of

FORMATS: Final = {
    WireType.BOOL: ("?", 1),
    WireType.INT8: ("b", 1),
    WireType.INT16: ("h", 2),
    WireType.UINT16: ("H", 2),
    WireType.INT32: ("i", 4),
    WireType.INT64: ("q", 8),
    WireType.FLOAT64: ("d", 8),
    WireType.UUID: ("16s", 16),
}
"""Types of fixed width, as ``struct`` names them."""


SHORT_ARRAY: Final = 16
"""Arrays of fixed-width values up to this length have a ready-made ``Struct``: replicas, partitions."""


class Source:
    """A function in the making: its lines, its indentation, and the objects that it refers to."""

    def __init__(self, signature: str, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._numbers = count()

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        self.line(text)
        self._depth += 1
        yield
        self._depth -= 1

    def new_name(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name for the value inside the function."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.new_name(prefix)
        self.names[name] = value
        return name

    def compile(self, name: str, title: str) -> Callable[..., Any]:
        """Run the definition; the title stands where a traceback would name the file."""
        namespace = dict(self.names)
        exec(compile("\n".join(self._lines) + "\n", f"<{title}>", "exec"), namespace)
        function: Callable[..., Any] = namespace[name]
        return function


class Layout:
    """The fields of a struct that one version has, or refuses to drop."""

    def __init__(self, message_type: type[Message], version: int) -> None:
        fields = fields_of(message_type)
        present = [field for field in fields if version in field.versions]
        self.plain = [field for field in present if field.tag is None]
        self.tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
        self.refused = [field for field in fields if version not in field.versions and not field.ignorable]


def carries_records(message_type: type[Message]) -> bool:
    return any(
        field.type is WireType.RECORDS or (not isinstance(field.type, WireType) and carries_records(field.type))
        for field in fields_of(message_type)
    )


@cache
def short_array_formats(letter: str) -> tuple[Format, ...]:
    return tuple(Format(f">{count}{letter}") for count in range(SHORT_ARRAY + 1))


def minimal_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of the field can take."""
    if field.is_array or field.type in (WireType.BYTES, WireType.RECORDS):
        return 1 if flexible else 4
    return minimal_element_size(field, version, flexible)


def minimal_element_size(field: Field, version: int, flexible: bool) -> int:
    """The same for an element of the field's array. Never 0, so that a frame's length bounds every count in it."""
    if isinstance(field.type, WireType):
        if field.type in FORMATS:
            return FORMATS[field.type][1]
        return 1 if flexible else (2 if field.type is WireType.STRING else 4)
    if field.is_nullable(version) and not field.is_array:
        return 1
    layout = Layout(field.type, version)
    return max(1, sum(minimal_size(inner, version, flexible) for inner in layout.plain) + flexible)
