"""Fetching what is damaged here from another replica, into a file beside the log."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Disk, DiskFile
from quorate.records.errors import CorruptBatch
from quorate.replication.integrity.messages import ReadRange, decode_answer, encode_request
from quorate.replication.partition import Partition
from quorate.storage.damage import DamagedRange
from quorate.storage.file_names import TEMPORARY, path_of
from quorate.storage.segment_repair import FilePart, RepairPlan, Replacement
from quorate.transport.peers.errors import PeerError, PeerProtocolError

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_MS = 20_000
_SUFFIX = ".replacement" + TEMPORARY

#: Sends a request to a node and returns its answer; ``PeerError`` where there is none.
AskReplica = Callable[[NodeId, bytes, float], Awaitable[bytes]]


class Replacements:
    """What has been fetched for one repair. A file of that name never outlives the node's next start."""

    def __init__(self, disk: Disk, plan: RepairPlan, *, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._disk = disk
        self._plan = plan
        self._loop = loop
        self._executor = executor
        self._path = path_of(plan.subject.directory, plan.subject.base_offset, _SUFFIX)
        self._file: DiskFile | None = None
        self._end = 0
        self.parts: list[FilePart] = []

    async def fetch(self, partition: Partition, replicas: Sequence[NodeId], ask: AskReplica) -> bool:
        """Fetch every damaged range from the first replica that has all of it; False where one is not to be had."""
        self._file = await self._in_worker(self._create)
        for damaged in self._plan.damage:
            if not await self._fetch_range(partition, damaged, replicas, ask):
                return False
        return True

    async def discard(self) -> None:
        await self._in_worker(self._remove)

    async def _fetch_range(
        self, partition: Partition, damaged: DamagedRange, replicas: Sequence[NodeId], ask: AskReplica
    ) -> bool:
        start = self._end
        for node_id in replicas:
            try:
                await self._fetch_from(partition, damaged, node_id, ask)
            except (PeerError, PeerProtocolError, KafkaError) as error:
                logger.warning(
                    "no replacement partition=%s from=%s first_offset=%s end_offset=%s error=%s",
                    partition,
                    node_id,
                    damaged.first_offset,
                    damaged.end_offset,
                    error,
                )
                await self._in_worker(self._cut, start)
                continue
            assert self._file is not None
            self.parts.append(FilePart(self._file, start, self._end))
            return True
        return False

    async def _fetch_from(self, partition: Partition, damaged: DamagedRange, node_id: NodeId, ask: AskReplica) -> None:
        subject = self._plan.subject
        replacement = Replacement(damaged, subject.epochs, may_have_holes=subject.may_have_holes)
        identity = partition.identity
        while not replacement.is_complete:
            request = ReadRange(
                topic_id=identity.topic_id,
                partition=identity.partition,
                first_offset=replacement.next_offset,
                end_offset=damaged.end_offset,
            )
            answer = await ask(node_id, encode_request(request), _REQUEST_TIMEOUT_MS)
            error, records = decode_answer(memoryview(answer))
            if error is not ErrorCode.NONE:
                raise KafkaError(error)
            if not records:
                replacement.end()
                return
            before = replacement.next_offset
            taken = replacement.take(records)
            if replacement.next_offset == before:
                raise CorruptBatch(f"nothing from offset {before} on")
            await self._in_worker(self._append, taken)

    async def _in_worker(self, work: Callable[..., DiskFile | None], *arguments: object) -> DiskFile | None:
        return await self._loop.run_in_executor(self._executor, work, *arguments)

    # In worker threads.

    def _create(self) -> DiskFile:
        file = self._disk.open(self._path, create=True)
        file.truncate(0)
        return file

    def _append(self, records: memoryview) -> None:
        assert self._file is not None
        self._file.append([records])
        self._end += len(records)

    def _cut(self, size_bytes: int) -> None:
        assert self._file is not None
        self._file.truncate(size_bytes)
        self._end = size_bytes

    def _remove(self) -> None:
        if self._file is not None:
            self._file.close()
        self._disk.remove(self._path)
