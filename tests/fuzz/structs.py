"""Messages between nodes as plain values, made from what msgspec knows of their types: right ones and hostile ones."""

from collections.abc import Callable, Mapping
from enum import Enum
from random import Random
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import inspect

from tests.fuzz import world as w

_NUMBERS: Final = (
    0, 1, -1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63),
    2**64 - 1,
)  # fmt: skip
_DOUBLES: Final = (0.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))
_WRONG: Final[tuple[Any, ...]] = (None, True, -1, 2**64 - 1, 1.5, "", "text", b"", b"\xff" * 20, [], {}, {"a": 1})

#: A plausible value for a field of this name, if there is any.
Plausible = Callable[[str], Any]
NOTHING: Final = object()


class Structs:
    def __init__(self, random: Random, plausible: Mapping[str, Callable[[], Any]]) -> None:
        self._random = random
        self._plausible = plausible

    def value(self, kind: inspect.Type, hostility: float, name: str = "", depth: int = 0) -> Any:
        """What msgpack can encode; with hostility 0 it can be decoded as the type."""
        random = self._random
        if random.random() < hostility / 10:
            return random.choice(_WRONG)
        plausible = self._plausible.get(name)
        if plausible is not None and random.random() >= hostility:
            return plausible()
        match kind:
            case inspect.StructType():
                return self._struct(kind, hostility, depth)
            case inspect.UnionType(types=types):
                return self.value(random.choice(types), hostility, name, depth)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return [self.value(item, hostility, name, depth + 1) for _ in range(self._count(hostility, depth))]
            case inspect.TupleType(item_types=items):
                return [self.value(item, hostility, name, depth + 1) for item in items]
            case inspect.DictType(key_type=key, value_type=value):
                count = self._count(hostility, depth)
                pairs = [(self.value(key, 0, "", depth), self.value(value, hostility, "", depth)) for _ in range(count)]
                return {each if isinstance(each, int | str) else str(each): said for each, said in pairs}
            case _:
                return self._scalar(kind, hostility)

    def _struct(self, kind: inspect.StructType, hostility: float, depth: int) -> Any:
        fields = [
            (field.encode_name, self.value(field.type, hostility, field.name, depth + 1)) for field in kind.fields
        ]
        if self._random.random() < hostility / 4 and fields:
            fields.pop(self._random.randrange(len(fields)))
        if not kind.array_like:
            said = dict(fields)
            return said if kind.tag_field is None else {kind.tag_field: kind.tag} | said
        values = [value for _, value in fields]
        return values if kind.tag is None else [kind.tag, *values]

    def _count(self, hostility: float, depth: int) -> int:
        if self._random.random() < hostility:
            return self._random.choice((0, 3, 20))
        return self._random.choice((0, 1, 1, 2)) if depth < 4 else 0

    def _scalar(self, kind: inspect.Type, hostility: float) -> Any:
        random = self._random
        match kind:
            case inspect.IntType():
                return random.choice(_NUMBERS) if random.random() < max(hostility, 0.1) else random.randrange(5)
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.FloatType():
                return random.choice(_DOUBLES)
            case inspect.StrType():
                return random.choice(w.HOSTILE_TEXTS + w.FUZZ_TOPICS)
            case inspect.UUIDType():
                return str(UUID(int=random.choice((0, 1, 2**128 - 1, random.getrandbits(128)))))
            case inspect.EnumType(cls=choices):
                return random.choice([each.value for each in choices])
            case inspect.LiteralType(values=values):
                return random.choice(values)
            case inspect.NoneType():
                return None
            case _:  # Bytes of some kind.
                return random.randbytes(random.choice((0, 1, 10, 200)))


def encode(value: Any) -> bytes:
    return msgspec.msgpack.encode(value.value if isinstance(value, Enum) else value)
