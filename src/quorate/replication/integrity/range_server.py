"""Gives other nodes what is sound here of a range that is damaged there."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.replication.integrity.messages import ReadRange, decode_request, encode_answer
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partitions import Partitions
from quorate.storage.reading import LogSlice

_MAX_BYTES = 1 << 20
_AT_A_TIME = 2


class RangeServer:
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
