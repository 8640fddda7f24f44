"""Requests and responses as they travel: size, header, body.

A header is flexible where its message is, but for one: the answer to ApiVersions never has a flexible header, as a
client must be able to read it before it knows what the node speaks (KIP-511). The client id is the other fossil: its
length has two bytes even in a flexible header.
"""

from struct import Struct as Format
from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from typing import Final, TypeVar

from msgspec import Struct

from quorate.kernel.ports import Buffer
from quorate.protocol.apis import APIS, ApiKey
from quorate.protocol.codec import decode, encode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.primitives import MAX_STRING_BYTES, refuse_length, refuse_string, skip_tagged_fields
from quorate.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_REQUEST_START: Final = Format(">hhi")
_CLIENT_ID_LENGTH: Final = Format(">h")
_SIZE_AND_CORRELATION: Final = Format(">ii")
_FULL_REQUEST_START: Final = Format(">ihhih")

#: Of every API and version that is known: whether its request has a flexible header.
_IS_FLEXIBLE: Final = {
    (int(api.key), version): version >= api.flexible_from
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
}


class RequestHeader(Struct, frozen=True, kw_only=True, gc=False):
    """The client and the API of a request. ``body_position`` is where the request's own fields start in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    # False: the API or the version is unknown, so that the frame was read no further than the correlation id.
    is_known: bool


def decode_request_header(frame: Buffer) -> RequestHeader:
    """The header of a frame that follows its 4-byte size. Only a frame under 8 bytes, or one with a known API and
    version and a broken client id, is refused: otherwise the correlation id is needed to answer."""
    try:
        api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame)
    except StructError as error:
        raise ProtocolError(f"a frame of {len(frame)} bytes cannot hold a request header") from error
    is_flexible = _IS_FLEXIBLE.get((api_key, api_version))
    client_id, position = None, _REQUEST_START.size
    if is_flexible is not None:
        client_id, position = _decode_client_id(frame, position)
        if is_flexible:
            position = _skip_header_tags(frame, position)
    return RequestHeader(
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
        body_position=position,
        is_known=is_flexible is not None,
    )


def encode_response(correlation_id: int, response: Response, version: int) -> list[Buffer]:
    """A whole response frame, size included, as buffers for one vectored write."""
    buffers = encode(response, version)
    tags = b"\0" if _has_flexible_response_header(type(response), version) else b""
    size = 4 + len(tags) + sum(map(len, buffers))
    buffers[0] = b"".join((_SIZE_AND_CORRELATION.pack(size, correlation_id), tags, buffers[0]))
    return buffers


def encode_unsupported_api_versions(correlation_id: int, supported: Response) -> list[Buffer]:
    """The answer to an ApiVersions request of a version that the node does not have: always of version 0.

    ``supported`` is an ``ApiVersionsResponse`` whose ``error_code`` is ``UNSUPPORTED_VERSION``, with the list of APIs,
    so that the client can ask again in a version that both know (KIP-511).
    """
    if supported.API_KEY != ApiKey.API_VERSIONS:
        raise ProtocolError(f"{type(supported).__name__} cannot answer an unsupported ApiVersions request")
    return encode_response(correlation_id, supported, 0)


def encode_request(correlation_id: int, client_id: str | None, request: Request, version: int) -> list[Buffer]:
    """A whole request frame, size included."""
    buffers = encode(request, version)
    raw_id = b"" if client_id is None else client_id.encode()
    if len(raw_id) > MAX_STRING_BYTES:
        refuse_string("the client id")
    tags = b"\0" if version >= request.FLEXIBLE_FROM else b""
    size = 10 + len(raw_id) + len(tags) + sum(map(len, buffers))
    id_length = -1 if client_id is None else len(raw_id)
    start = _FULL_REQUEST_START.pack(size, request.API_KEY, version, correlation_id, id_length)
    buffers[0] = b"".join((start, raw_id, tags, buffers[0]))
    return buffers


def decode_response_correlation_id(frame: Buffer) -> int:
    """The id of the request that a frame answers, which tells how to decode it."""
    if len(frame) < 4:
        raise ProtocolError(f"a frame of {len(frame)} bytes cannot hold a response header")
    return int.from_bytes(frame[:4], signed=True)


def decode_response(response_type: type[R], frame: Buffer, version: int) -> tuple[int, R]:
    """The correlation id and the response of a frame that follows its 4-byte size."""
    correlation_id = decode_response_correlation_id(frame)
    position = 4
    if _has_flexible_response_header(response_type, version):
        position = _skip_header_tags(frame, position)
    return correlation_id, decode(response_type, frame, version, position)


def _has_flexible_response_header(response_type: type[Response], version: int) -> bool:
    return version >= response_type.FLEXIBLE_FROM and response_type.API_KEY != ApiKey.API_VERSIONS


def _decode_client_id(frame: Buffer, position: int) -> tuple[str | None, int]:
    try:
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, position)
        position += 2
        if length == -1:
            return None, position
        stop = position + length
        if not position <= stop <= len(frame):
            refuse_length("the client id", length)
        return str(frame[position:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id is not UTF-8") from error
    except StructError as error:
        raise ProtocolError("the header is longer than its frame") from error


def _skip_header_tags(frame: Buffer, position: int) -> int:
    try:
        return skip_tagged_fields(frame, position) if frame[position] else position + 1
    except IndexError as error:
        raise ProtocolError("the header is longer than its frame") from error
