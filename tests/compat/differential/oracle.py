"""What a library must offer to judge our codecs, and how two libraries' messages are made comparable."""

from typing import Any, NamedTuple, Protocol

from quorate.kernel.ports import Buffer
from quorate.protocol.schema import Message, VersionedMessage, fields_of

Plain = Any
"""A message as nested tuples of plain values: only the fields that its version has, in wire order."""


class Verdict(NamedTuple):
    """What an oracle read in our bytes, and the bytes that it writes for the same message."""

    plain: Plain
    encoded: bytes


class Oracle(Protocol):
    name: str

    def knows(self, message_type: type[VersionedMessage], version: int) -> bool: ...

    def kind(self, message_type: type[VersionedMessage], version: int, path: str) -> str:
        """What the oracle takes the field at this path for, where its values are narrower than the wire's."""
        ...

    def judge(self, message_type: type[VersionedMessage], version: int, encoded: bytes) -> Verdict: ...


def to_plain(value: Any, version: int) -> Plain:
    if isinstance(value, Message):
        names = [field.name for field in fields_of(type(value)) if version in field.versions]
        return tuple(to_plain(getattr(value, name), version) for name in names)
    if isinstance(value, tuple):
        return tuple(to_plain(item, version) for item in value)
    return bytes(value) if isinstance(value, memoryview) else value


def joined(buffers: list[Buffer]) -> bytes:
    return b"".join(buffers)
