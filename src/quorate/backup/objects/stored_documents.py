"""Decodes what lies in a storage, whatever was put there; every fault is one sentence."""

from typing import Any, TypeVar

import msgspec

from quorate.backup.errors import BackupError, printable
from quorate.backup.manifests.seal import is_sealed, seal

_Decoded = TypeVar("_Decoded")
_MAX_REASON_LENGTH = 1000


class DamagedDocument(BackupError):
    """An object beside a backup is there and cannot be believed."""


class DocumentFault(ValueError):
    """The bytes are not a document of this kind; the caller adds which object it is."""


def decode_json(data: bytes | memoryview, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DocumentFault(one_line(str(error))) from None
    except RecursionError:
        raise DocumentFault("it is nested too deeply") from None


def encode_sealed(document: msgspec.Struct) -> bytes:
    """With its SHA-256 at the end, as manifests have it."""
    encoded = msgspec.json.encode(document)
    assert encoded != b"{}", "a document without a field cannot be sealed"
    return seal(encoded)


def decode_sealed(data: bytes, kind: Any) -> Any:
    if not is_sealed(data):
        raise DocumentFault("it does not match its SHA-256")
    return decode_json(data, kind)


def decode_packed(data: bytes, kind: Any) -> Any:
    """The same for msgpack."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise DocumentFault(one_line(str(error))) from None
    except RecursionError:
        raise DocumentFault("it is nested too deeply") from None


def one_line(text: str) -> str:
    """What somebody else has written, as a part of a sentence: it moves no cursor and begins no line."""
    shown = printable(text)
    return shown if len(shown) <= _MAX_REASON_LENGTH else f"{shown[:_MAX_REASON_LENGTH]}…"
