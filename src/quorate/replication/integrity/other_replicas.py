"""The other replicas of a partition: who they are, having one lead, and fetching from them what is damaged here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.kernel.ports import Disk, DiskFile
from quorate.metadata.core.commands import LedPartition, ResignLeadership
from quorate.metadata.store import MetadataStore
from quorate.records.errors import CorruptBatch
from quorate.replication.integrity.range_reads import ReadRange, decode_answer, encode_request
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.storage.damage import DamagedRange
from quorate.storage.file_names import TEMPORARY, path_of
from quorate.storage.segment_repair import FilePart, RepairPlan, Replacement
from quorate.transport.peers.errors import PeerError, PeerProtocolError

logger = logging.getLogger(__name__)

_HANDOVER_WITHIN_S = 5.0
_LOOKS = 100

_REQUEST_TIMEOUT_MS = 20_000
_SUFFIX = ".replacement" + TEMPORARY

#: Sends a request to a node and returns its answer; ``PeerError`` where there is none.
AskReplica = Callable[[NodeId, bytes, float], Awaitable[bytes]]


class OtherReplicas:
    """By the metadata image."""

    def __init__(self, node_id: NodeId, broker_epoch: BrokerEpoch, metadata: MetadataStore) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata

    def of(self, partition: Partition) -> list[NodeId]:
        """The other live replicas: the leader first, then those in sync."""
        identity, image = partition.identity, self._metadata.image
        topic = image.topic_by_id(identity.topic_id)
        state = None if topic is None else topic.partitions.get(identity.partition)
        if state is None:
            return []
        others = [node for node in state.replicas if node != self._node_id and image.is_live(node)]
        return sorted(others, key=lambda node: (node != state.leader, node not in state.isr))

    async def resign(self, partition: Partition) -> None:
        """Have another in-sync replica lead; returns when one does, or when there is none."""
        role = partition.role
        if not isinstance(role, Leading) or len(role.isr) < 2:
            return
        identity = partition.identity
        led = LedPartition(identity.topic_id, identity.partition, partition.leader_epoch)
        command = ResignLeadership(node_id=self._node_id, broker_epoch=self._broker_epoch, partitions=(led,))
        (outcome,) = await self._metadata.submit([command])
        if isinstance(outcome, KafkaError):
            logger.warning("leadership not handed over partition=%s error=%s", partition, outcome)
            return
        logger.info("leadership handed over partition=%s reason='records are damaged on this disk'", partition)
        for _ in range(_LOOKS):
            if partition.role is not role:
                return
            await asyncio.sleep(_HANDOVER_WITHIN_S / _LOOKS)


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
