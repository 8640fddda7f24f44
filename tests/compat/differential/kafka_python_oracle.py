"""kafka-python as an oracle: one class for all versions of a message, interpreted from the same definitions."""

import importlib
import pkgutil
from functools import cache
from typing import Any

import kafka.protocol
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage

from quorate.protocol.schema import Field, Message, VersionedMessage, WireType, fields_of
from tests.compat.differential.oracle import Plain, Verdict, to_plain


class KafkaPythonOracle:
    name = "kafka-python"

    def knows(self, message_type: type[VersionedMessage], version: int) -> bool:
        theirs = _classes().get(message_type.__name__)
        return theirs is not None and version <= theirs.max_version

    def kind(self, message_type: type[VersionedMessage], version: int, path: str) -> str:
        return path

    def judge(self, message_type: type[VersionedMessage], version: int, encoded: bytes) -> Verdict:
        message = self.decode(message_type, version, encoded)
        plain = _to_plain(message, message_type, version)
        if isinstance(message, ApiData):
            return Verdict(plain, bytes(message.encode(version=version, header=False)))
        return Verdict(plain, bytes(message.encode(version=version)))

    def frame(
        self, message_type: type[VersionedMessage], version: int, encoded: bytes, correlation_id: int, client_id: str
    ) -> bytes:
        """The whole frame, with size and header, that kafka-python would send for the encoded message."""
        message = self.decode(message_type, version, encoded)
        message.with_header(correlation_id=correlation_id, client_id=client_id)
        return bytes(message.encode(header=True, framed=True))

    def decode(self, message_type: type[VersionedMessage], version: int, encoded: bytes) -> Any:
        theirs = _classes()[message_type.__name__]
        if issubclass(theirs, ApiData):
            return theirs.decode(encoded, version=version, header=False)
        message = theirs.decode(encoded, version=version)
        message._header = None  # Encoding asks for it, decoding leaves it out.
        message.API_VERSION = version
        return message


@cache
def _classes() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and not module.name.endswith("generate_stubs"):
            importlib.import_module(module.name)
    return {theirs.__name__: theirs for base in (ApiMessage, ApiData) for theirs in base.__subclasses__()}


def _to_plain(value: Any, message_type: type[Message], version: int) -> Plain:
    ours = [field for field in fields_of(message_type) if version in field.versions]
    theirs = [field.name for field in value._struct._fields if field.for_version_q(version)]
    return tuple(
        _field_to_plain(getattr(value, name), field, version) for field, name in zip(ours, theirs, strict=True)
    )


def _field_to_plain(value: Any, field: Field, version: int) -> Plain:
    if value is None and not field.is_nullable(version):
        # kafka-python's way to say: the zero UUID, no bit set, a tagged struct that was not sent.
        return to_plain(field.default, version)
    if field.is_array and value is not None:
        return tuple(_value_to_plain(item, field, version) for item in value)
    return _value_to_plain(value, field, version)


def _value_to_plain(value: Any, field: Field, version: int) -> Plain:
    if isinstance(value, set):
        bits = sum(1 << bit for bit in value)
        return bits - 2**32 if bits >= 2**31 else bits
    if isinstance(field.type, WireType) or value is None:
        return bytes(value) if isinstance(value, memoryview | bytearray) else value
    return _to_plain(value, field.type, version)
