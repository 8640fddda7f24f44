"""Reads of a range that is damaged elsewhere: what a node asks of another replica, its answer, and who serves it."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partitions import Partitions
from quorate.storage.reading import LogSlice
from quorate.transport.peers.errors import PeerProtocolError


class ReadRange(msgspec.Struct, frozen=True, array_like=True):
    """The batches that have offsets from ``first_offset`` up to ``end_offset``; as many as fit into an answer."""

    topic_id: UUID
    partition: int
    first_offset: int
    end_offset: int


_MAX_BYTES = 1 << 20
_AT_A_TIME = 2
_ERROR_CODE = Struct(">h")
_ERROR_CODES = frozenset(ErrorCode)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ReadRange] = msgspec.msgpack.Decoder(ReadRange)


def encode_request(request: ReadRange) -> bytes:
    return _encoder.encode(request)


def decode_request(payload: Buffer) -> ReadRange:
    """Raises ``PeerProtocolError`` where no sound node asks so."""
    try:
        request = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(f"malformed read of a range: {error}") from None
    if not 0 <= request.first_offset < request.end_offset < 2**63 or not 0 <= request.partition < 2**31:
        raise PeerProtocolError(f"a read of offsets {request.first_offset} to {request.end_offset}")
    return request


def encode_answer(error: ErrorCode, records: Buffer = b"") -> Sequence[Buffer]:
    """No error and no records: there are none in the range."""
    return [_ERROR_CODE.pack(error), records]


def decode_answer(payload: memoryview) -> tuple[ErrorCode, bytes]:
    """Raises ``PeerProtocolError`` where it is no answer."""
    try:
        (code,) = _ERROR_CODE.unpack_from(payload)
    except StructError as error:
        raise PeerProtocolError(f"malformed answer to a read of a range: {error}") from None
    if code not in _ERROR_CODES:
        raise PeerProtocolError("malformed answer to a read of a range: there is no such error")
    return ErrorCode(code), bytes(payload[_ERROR_CODE.size :])


class RangeServer:
    """Gives other nodes what is sound here of a range that is damaged there."""

    def __init__(self, partitions: Partitions, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._partitions = partitions
        self._loop = loop
        self._executor = executor
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def serve(self, payload: Buffer) -> Sequence[Buffer]:
        request = decode_request(payload)
        async with self._turns:
            try:
                piece = await self._find(request)
            except KafkaError as error:
                return encode_answer(error.code)
            return encode_answer(ErrorCode.NONE, await self._loop.run_in_executor(self._executor, piece.read))

    async def _find(self, request: ReadRange) -> LogSlice:
        partition = self._partitions.replica_by_id(request.topic_id, request.partition)
        log = partition.log
        return await when_sound(
            partition,
            lambda: log.read(
                Offset(request.first_offset),
                max_bytes=_MAX_BYTES,
                up_to_offset=min(Offset(request.end_offset), log.log_end_offset),
                minimum_one_batch=True,
            ),
            waits_for_repair=False,
        )
