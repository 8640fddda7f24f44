"""Random messages of every type and version, from their schemas and a seed."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, TypeVar
from uuid import UUID

from quorate.protocol.apis import APIS
from quorate.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from quorate.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from quorate.protocol.schema import Field, Message, VersionedMessage, WireType, fields_of

M = TypeVar("M", bound=Message)

INTEGER_RANGES: Final = {
    WireType.INT8: (-(2**7), 2**7 - 1),
    WireType.INT16: (-(2**15), 2**15 - 1),
    WireType.UINT16: (0, 2**16 - 1),
    WireType.INT32: (-(2**31), 2**31 - 1),
    WireType.INT64: (-(2**63), 2**63 - 1),
}
# On both sides of where a compact length needs a second byte.
_LENGTHS: Final = (0, 1, 5, 126, 127, 300)
_SMALL_LENGTHS: Final = (0, 1, 3)


def message_types() -> Iterator[type[VersionedMessage]]:
    for api in APIS.values():
        yield api.request_type
        yield api.response_type
    yield ConsumerProtocolSubscription
    yield ConsumerProtocolAssignment


def types_and_versions() -> Iterator[tuple[type[VersionedMessage], int]]:
    for message_type in message_types():
        for version in range(message_type.MIN_VERSION, message_type.MAX_VERSION + 1):
            yield message_type, version


class Sampler:
    """Makes messages. ``replace_leaf`` may put another value where one of its choice stands (by field path).

    A small one makes messages of some ten bytes, with no array longer than one element.
    """

    def __init__(
        self,
        seed: int | str,
        replace_leaf: Callable[[str, Any], Any] = lambda path, value: value,
        *,
        small: bool = False,
    ) -> None:
        self.random = Random(seed)
        self._replace_leaf = replace_leaf
        self._lengths = _SMALL_LENGTHS if small else _LENGTHS
        self._small = small

    def message(self, message_type: type[M], version: int, path: str | None = None) -> M:
        path = path or message_type.__name__
        values = {
            field.name: self._field(field, version, f"{path}.{field.name}")
            for field in fields_of(message_type)
            if version in field.versions and not (field.tag is not None and self.random.random() < 0.4)
        }
        return message_type(**values)

    def _field(self, field: Field, version: int, path: str) -> Any:
        if field.is_nullable(version) and self.random.random() < 0.25:
            return None
        if not field.is_array:
            return self._value(field, version, path)
        count = self._count(is_leaf=isinstance(field.type, WireType))
        return tuple(self._value(field, version, path) for _ in range(count))

    def _count(self, *, is_leaf: bool) -> int:
        if self._small:
            return self.random.randrange(2)
        # Now and then so many that the count needs a second byte in a compact array.
        return 130 if is_leaf and self.random.random() < 0.05 else self.random.randrange(3)

    def _value(self, field: Field, version: int, path: str) -> Any:
        if isinstance(field.type, WireType):
            return self._replace_leaf(path, self._leaf(field.type))
        return self.message(field.type, version, path)

    def _leaf(self, wire_type: WireType) -> Any:
        random = self.random
        match wire_type:
            case WireType.BOOL:
                return random.random() < 0.5
            case WireType.FLOAT64:
                return random.uniform(-1e9, 1e9)
            case WireType.UUID:
                return UUID(int=random.choice((0, 1, random.getrandbits(128))))
            case WireType.STRING:
                return "".join(random.choice("aZ0-._é€😀") for _ in range(random.choice(self._lengths) // 2))
            case WireType.BYTES | WireType.RECORDS:
                return random.randbytes(random.choice(self._lengths))
        lowest, highest = INTEGER_RANGES[wire_type]
        return random.choice((lowest, highest, 0, -1 if lowest else 1, random.randint(lowest, highest)))
