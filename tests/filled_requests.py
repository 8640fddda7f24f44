"""Requests of any API and version whose arrays are full, made from the schema of their messages."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final
from uuid import UUID

from quorate.protocol.schema import Field, Message, Request, WireType, fields_of
from quorate.records.builder import build_batch
from quorate.records.record import Record


class Shape(Enum):
    """Where the elements are: in the outermost arrays, with one element in each of theirs, or in the innermost ones."""

    WIDE = "wide"
    DEEP = "deep"


_NAMES: Final = ("topic", "name", "group", "key", "resource_name", "transactional_id", "entity")
_BATCH: Final = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])  # type: ignore[arg-type]

#: From a field's name and the number of its element to the name that is to stand there.
Name = Callable[[str, int], str]


def filled(
    request_type: type[Request], version: int, shape: Shape, elements: int, name: Name, *, nulls: bool = False
) -> Request:
    """Every array that the version has, with so many elements where the shape wants them."""
    return _Filler(version, shape, elements, name, nulls=nulls).message(request_type, 0)  # type: ignore[return-value]


class _Filler:
    def __init__(self, version: int, shape: Shape, elements: int, name: Name, *, nulls: bool) -> None:
        self._version = version
        self._shape = shape
        self._elements = elements
        self._name = name
        self._nulls = nulls

    def message(self, message_type: type[Message], number: int) -> Message:
        values: dict[str, Any] = {}
        for field in fields_of(message_type):
            if self._version not in field.versions or field.tag is not None:
                continue
            if self._nulls and field.is_nullable(self._version):
                values[field.name] = None
            elif field.is_array:
                values[field.name] = self._array(field, is_outer=number == 0 and message_type.__base__ is Request)
            else:
                values[field.name] = self._value(field, number)
        return message_type(**values)

    def _array(self, field: Field, *, is_outer: bool) -> list[Any]:
        has_arrays = isinstance(field.type, type) and any(inner.is_array for inner in fields_of(field.type))
        is_full = is_outer if self._shape is Shape.WIDE else not has_arrays
        return [self._value(field, number) for number in range(self._elements if is_full else 1)]

    def _value(self, field: Field, number: int) -> Any:
        match field.type:
            case WireType.STRING:
                return self._name(field.name, number)
            case WireType.BYTES:
                return b"bytes"
            case WireType.RECORDS:
                return _BATCH
            case WireType.UUID:
                return UUID(int=number + 1)
            case WireType.BOOL:
                return False
            case WireType.FLOAT64:
                return 1.0
            case WireType():
                return self._number(field, number)
            case message_type:
                return self.message(message_type, number)

    def _number(self, field: Field, number: int) -> int:
        if field.type in (WireType.INT8, WireType.INT16):
            return int(field.default) if field.default is not None and type(field.default) is int else 0
        if "timeout" in field.name or "wait" in field.name:
            return 1000
        if "max_bytes" in field.name:
            return 1024 * 1024
        return number
