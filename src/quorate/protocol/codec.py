"""Messages to bytes and back, in any version.

A function for each message type and version is specialised when it is first used, and kept. Tagged fields that the
version does not know are skipped (KIP-482), not kept.
"""

from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from typing import Any, Final, TypeVar

from quorate.kernel.ports import Buffer
from quorate.protocol.decoder import Decoder, specialise_decoder
from quorate.protocol.encoder import Encoder, specialise_encoder
from quorate.protocol.errors import ProtocolError
from quorate.protocol.schema import VersionedMessage

M = TypeVar("M", bound=VersionedMessage)

# What reading beyond the frame or a broken string raises inside a decoder. Lengths are refused there, by name.
_MALFORMED: Final = (StructError, IndexError, UnicodeDecodeError)

#: Of a message that is not from a client.
UNLIMITED: Final = 1 << 62

_decoders: Final[dict[tuple[type[Any], int], Decoder]] = {}
_encoders: Final[dict[tuple[type[Any], int], Encoder]] = {}


def decode(message_type: type[M], frame: Buffer, version: int, position: int = 0) -> M:
    """The message that fills the frame from the position to its end. Anything else is a ``ProtocolError``.

    ``records`` fields are memoryviews of the frame and live as long as its memory does; all else is copied.
    """
    decoder = _decoders.get((message_type, version)) or _new_decoder(message_type, version)
    try:
        message, end = decoder(frame, position, UNLIMITED)
    except _MALFORMED as error:
        raise _refusal(message_type, version, error) from error
    if end != len(frame):
        raise ProtocolError(f"{message_type.__name__} version {version} ends {len(frame) - end} bytes before its frame")
    return message  # type: ignore[return-value]


def decode_part(
    message_type: type[M], frame: Buffer, version: int, position: int = 0, max_elements: int = UNLIMITED
) -> tuple[M, int]:
    """The message that starts at the position, and the position after it. All its arrays together are bounded."""
    decoder = _decoders.get((message_type, version)) or _new_decoder(message_type, version)
    try:
        return decoder(frame, position, max_elements)  # type: ignore[return-value]
    except _MALFORMED as error:
        raise _refusal(message_type, version, error) from error


def encode(message: VersionedMessage, version: int) -> list[Buffer]:
    """The buffers that hold the message, one after the other. Records are among them as they were handed in."""
    message_type = type(message)
    encoder = _encoders.get((message_type, version)) or _new_encoder(message_type, version)
    try:
        return encoder(message)
    except (StructError, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise ProtocolError(f"cannot encode {message_type.__name__} version {version}: {error}") from error


def decode_versioned(message_type: type[M], data: Buffer) -> M:
    """A message behind its own version number, as consumer protocols and internal topics store it.

    A newer version than we know is read as the newest that we do, and what it has added is passed over.
    """
    version = int.from_bytes(data[:2], signed=True)
    if len(data) < 2 or version < message_type.MIN_VERSION:
        raise ProtocolError(f"{message_type.__name__} has no version that is known")
    if version <= message_type.MAX_VERSION:
        return decode(message_type, data, version, 2)
    return decode_part(message_type, data, message_type.MAX_VERSION, 2)[0]


def encode_versioned(message: VersionedMessage, version: int) -> bytes:
    return b"".join([version.to_bytes(2), *encode(message, version)])


def _refusal(message_type: type[VersionedMessage], version: int, error: Exception) -> ProtocolError:
    what = "has a string that is not UTF-8" if isinstance(error, UnicodeDecodeError) else "is longer than its frame"
    return ProtocolError(f"{message_type.__name__} version {version} {what}")


def _new_decoder(message_type: type[VersionedMessage], version: int) -> Decoder:
    _check_version(message_type, version)
    decoder = specialise_decoder(message_type, version, version >= message_type.FLEXIBLE_FROM)
    _decoders[message_type, version] = decoder
    return decoder


def _new_encoder(message_type: type[VersionedMessage], version: int) -> Encoder:
    _check_version(message_type, version)
    encoder = specialise_encoder(message_type, version, version >= message_type.FLEXIBLE_FROM)
    _encoders[message_type, version] = encoder
    return encoder


def _check_version(message_type: type[VersionedMessage], version: int) -> None:
    if not message_type.MIN_VERSION <= version <= message_type.MAX_VERSION:
        raise ProtocolError(f"{message_type.__name__} has no version {version}")
