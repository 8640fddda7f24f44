"""The wire format of a message class, as its annotations declare it, and how that is read back.

Each field of a generated message is annotated with its wire type and, where it is not there in every version of its
message, with the versions that have it::

    topic: Annotated[String, Versions(0, 12), IGNORABLE] = ""

The decoder and the encoder specialise a function for one message and version from these annotations.
"""

from collections.abc import Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from msgspec import Struct

from quorate.kernel.ports import Buffer, FileRegion

NEVER_FLEXIBLE: Final = 0x7FFF
"""``FLEXIBLE_FROM`` of a message that has no flexible version (KIP-482)."""

NO_UUID: Final = UUID(int=0)


class WireType(Enum):
    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT64 = "float64"
    UUID = "uuid"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


Bool = Annotated[bool, WireType.BOOL]
Int8 = Annotated[int, WireType.INT8]
Int16 = Annotated[int, WireType.INT16]
Uint16 = Annotated[int, WireType.UINT16]
Int32 = Annotated[int, WireType.INT32]
Int64 = Annotated[int, WireType.INT64]
Float64 = Annotated[float, WireType.FLOAT64]
Uuid = Annotated[UUID, WireType.UUID]
String = Annotated[str, WireType.STRING]
Bytes = Annotated[bytes, WireType.BYTES]
# Decoding gives a memoryview of the frame. Encoding takes any buffer, a region of a file, or a list or tuple of these,
# and copies none of them.
Records = Annotated[Buffer | FileRegion | Sequence[Buffer], WireType.RECORDS]


class Versions(Struct, frozen=True):
    """An inclusive range of message versions; without ``last``, up to the newest."""

    first: int = 0
    last: int = NEVER_FLEXIBLE

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


class Nullable(Versions, frozen=True):
    """The versions in which a ``| None`` field may be null, where these are not all that have the field."""


class Tagged(Struct, frozen=True):
    """The field is written only when it has not its default, behind this tag (KIP-482)."""

    tag: int


class Ignorable(Struct, frozen=True):
    """A version without this field drops its value silently; otherwise only the default can be encoded."""


ALL_VERSIONS: Final = Versions()
IGNORABLE: Final = Ignorable()


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all messages and of the structs inside them. Immutable trees cannot form cycles, hence ``gc=False``."""


class VersionedMessage(Message, frozen=True, kw_only=True, gc=False):
    """A message that is encoded on its own, in one of a range of versions."""

    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]


class ApiMessage(VersionedMessage, frozen=True, kw_only=True, gc=False):
    """A request or a response."""

    API_KEY: ClassVar[int]
    # The newest version is still being changed by Apache Kafka, and must not be advertised to clients.
    LATEST_UNSTABLE: ClassVar[bool] = False


class Request(ApiMessage, frozen=True, kw_only=True, gc=False):
    pass


class Response(ApiMessage, frozen=True, kw_only=True, gc=False):
    pass


class Field(Struct, frozen=True, kw_only=True):
    """One field of a message class, as its annotation describes it."""

    name: str
    type: WireType | type[Message]
    is_array: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    ignorable: bool
    default: Any

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


@cache
def fields_of(message_type: type[Message]) -> tuple[Field, ...]:
    """The fields of the class, in wire order."""
    hints = get_type_hints(message_type, include_extras=True)
    names = message_type.__struct_fields__
    defaults = message_type.__struct_defaults__
    return tuple(_read_field(name, hints[name], default) for name, default in zip(names, defaults, strict=True))


def _read_field(name: str, annotation: Any, default: Any) -> Field:
    marks: list[Any] = []
    inner = _peel(annotation, marks)
    accepts_none = get_origin(inner) in (Union, UnionType) and NoneType in get_args(inner)
    if accepts_none:
        inner = _peel(next(option for option in get_args(inner) if option is not NoneType), marks)
    is_array = get_origin(inner) is Sequence
    if is_array:
        inner = _peel(get_args(inner)[0], marks)
    return Field(
        name=name,
        type=next((mark for mark in marks if isinstance(mark, WireType)), inner),
        is_array=is_array,
        versions=next((mark for mark in marks if type(mark) is Versions), ALL_VERSIONS),
        nullable=next((mark for mark in marks if type(mark) is Nullable), ALL_VERSIONS if accepts_none else None),
        tag=next((mark.tag for mark in marks if type(mark) is Tagged), None),
        ignorable=IGNORABLE in marks,
        default=default,
    )


def _peel(annotation: Any, marks: list[Any]) -> Any:
    """Take ``Annotated`` off, and add what it said to the marks."""
    if get_origin(annotation) is Annotated:
        marks.extend(annotation.__metadata__)
        return annotation.__origin__
    return annotation
