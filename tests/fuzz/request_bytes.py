"""Requests of any API and version as bytes, made from the schema of the messages, with hostile values where asked.

A request is written by hand and not by the node's own encoder: it may have null where null is not allowed, counts that
are negative or too large, lengths beyond the frame and tagged fields that nobody knows.
"""

from collections.abc import Callable
from functools import cache
from random import Random
from struct import pack
from typing import Any, Final, NamedTuple

from quorate.protocol.schema import Message, Request, WireType
from quorate.protocol.source import FORMATS, Layout
from tests.fuzz.record_batches import RecordBatches
from tests.fuzz.values import Values

_LENGTH_FAULTS: Final = (-2, -1, 0, 1, 127, 128, 32767, 65536, 2**24, 2**31 - 1, -(2**31), -32768)
#: Of elements in an array of a sound request.
_COUNTS: Final = (0, 1, 1, 1, 2, 3)
_MAX_DEPTH_COUNT: Final = 2
#: Of requests with hostile values: so many elements that they are answered in parts, if at all.
_WIDE: Final = 0.02
_WIDE_COUNTS: Final = (100, 600, 3_000, 30_000)
_WIDE_BYTES: Final = 4 << 20


class _FieldPlan(NamedTuple):
    name: str
    owner: str
    type: WireType | type[Message]
    is_array: bool
    nullable: bool
    tag: int | None


class _Plan(NamedTuple):
    plain: tuple[_FieldPlan, ...]
    tagged: tuple[_FieldPlan, ...]


@cache
def _plan(message_type: type[Message], version: int) -> _Plan:
    layout = Layout(message_type, version)

    def of(fields: list[Any]) -> tuple[_FieldPlan, ...]:
        return tuple(
            _FieldPlan(f.name, message_type.__name__, f.type, f.is_array, f.is_nullable(version), f.tag) for f in fields
        )

    return _Plan(of(layout.plain), of(layout.tagged))


def unsigned_varint(value: int) -> bytes:
    value &= 0xFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class RequestBytes:
    """Writes one request. ``hostility`` is how likely a value is to be one that no client sends."""

    def __init__(self, random: Random, values: Values, batches: RecordBatches, *, is_wide: bool = False) -> None:
        self._random = random
        self._wide = _WIDE if is_wide else 0.0
        self._values = values
        self._batches = batches
        self._fixed: dict[WireType, Callable[[_FieldPlan], bytes]] = {
            WireType.BOOL: lambda _: b"\1" if random.random() < 0.5 else b"\0",
            WireType.UUID: lambda field: values.uuid(field.name, self._hostility).bytes,
            WireType.FLOAT64: lambda _: pack(">d", values.double()),
        }

    def write(self, request_type: type[Request], version: int, hostility: float, fields_until_fault: int) -> bytes:
        """The body of a request, without its header. A negative count of fields means that no length is wrong."""
        self._flexible = version >= request_type.FLEXIBLE_FROM
        self._version = version
        self._hostility = hostility
        self._left = fields_until_fault
        return self._struct(request_type, 0)

    def _struct(self, message_type: type[Message], depth: int) -> bytes:
        plan = _plan(message_type, self._version)
        parts = [self._field(field, depth) for field in plan.plain]
        if self._flexible:
            parts.append(self._tags(plan.tagged, depth))
        return b"".join(parts)

    def _field(self, field: _FieldPlan, depth: int) -> bytes:
        if not field.is_array:
            return self._value(field, depth)
        random = self._random
        if field.nullable and random.random() < 0.1:
            return self._length(-1, 4)
        count = random.choice(_COUNTS) if random.random() >= self._hostility / 4 else random.choice((0, 2, 9, 40))
        count = min(count, 1 if depth > _MAX_DEPTH_COUNT else 100)
        elements = [self._value(field, depth + 1) for _ in range(count)]
        if elements and random.random() < self._hostility:
            elements.append(elements[0])  # Named twice.
            if depth == 0 and random.random() < self._wide:
                elements *= min(random.choice(_WIDE_COUNTS), max(1, _WIDE_BYTES // max(1, sum(map(len, elements)))))
        return self._length(len(elements), 4) + b"".join(elements)

    def _value(self, field: _FieldPlan, depth: int) -> bytes:
        kind = field.type
        if not isinstance(kind, WireType):
            return self._nested(field, kind, depth)
        if kind is WireType.STRING:
            return self._string(field)
        if kind is WireType.BYTES or kind is WireType.RECORDS:
            return self._octets(field, kind)
        writer = self._fixed.get(kind)
        if writer is not None:
            return writer(field)
        letter, size = FORMATS[kind]
        value = self._values.integer(field.name, size, self._hostility, signed=kind is not WireType.UINT16)
        return pack(">" + letter, value)

    def _nested(self, field: _FieldPlan, message_type: type[Message], depth: int) -> bytes:
        if not field.nullable or field.is_array:
            return self._struct(message_type, depth + 1)
        if self._random.random() < 0.3:
            return b"\xff"
        return b"\1" + self._struct(message_type, depth + 1)

    def _string(self, field: _FieldPlan) -> bytes:
        random = self._random
        if field.nullable and random.random() < 0.2:
            return self._length(-1, 2)
        if random.random() < self._hostility / 20:
            raw = random.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\x80"))  # Not UTF-8.
        else:
            raw = self._values.text(field.name, field.owner, self._hostility).encode()
        return self._length(len(raw), 2) + raw

    def _octets(self, field: _FieldPlan, kind: WireType) -> bytes:
        random = self._random
        if field.nullable and random.random() < 0.05:
            return self._length(-1, 4)
        raw = self._batches.records(random, self._hostility) if kind is WireType.RECORDS else self._values.octets()
        return self._length(len(raw), 4) + raw

    def _length(self, length: int, width: int) -> bytes:
        self._left -= 1
        if self._left == 0:
            length = self._random.choice(_LENGTH_FAULTS)
        if self._flexible:
            return unsigned_varint(length + 1)
        return (length & (1 << 8 * width) - 1).to_bytes(width)

    def _tags(self, fields: tuple[_FieldPlan, ...], depth: int) -> bytes:
        random = self._random
        said = [(field.tag or 0, self._field(field, depth)) for field in fields if random.random() < 0.5]
        if random.random() < self._hostility / 2:
            unknown = random.choice((0, 1, 63, 127, 128, 10_000, 10_001, 2**31 - 1, 2**32 - 1))
            said.append((unknown, random.randbytes(random.choice((0, 1, 5, 100)))))
            if random.random() < 0.8:
                said.sort(key=lambda each: each[0])
        count = len(said)
        self._left -= 1
        if self._left == 0:
            count = random.choice((count + 1, 127, 2**31 - 1, 2**32 - 1))
        tagged = b"".join(unsigned_varint(tag) + unsigned_varint(len(raw)) + raw for tag, raw in said)
        return unsigned_varint(count) + tagged
