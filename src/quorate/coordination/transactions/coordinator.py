"""The transaction coordinator of this node: what it does beside running the shards of ``__transaction_state``.

It takes new producer ids where a shard needs one, and has the partitions of a transaction write how it ended, each at
its leader, through every change of leaders. Who leads comes from the metadata image. A marker that is sent again after
a lost answer does no harm, so whatever is not certain is sent again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar, cast

import msgspec

from quorate.coordination.coordinator import AskNode, Coordinator, CoordinatorEnvironment
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.runtime import ShardRunner
from quorate.coordination.transactions.core import records
from quorate.coordination.transactions.core.commands import (
    Command,
    EndTransaction,
    IdCommand,
    InitProducer,
    ListTransactions,
    ListTransactionsResult,
    ProducerIdNeeded,
    Result,
)
from quorate.coordination.transactions.core.decisions import binds, refusal
from quorate.coordination.transactions.core.effects import Markers, MarkersWritten, SendMarkers
from quorate.coordination.transactions.core.records import TransactionRecord
from quorate.coordination.transactions.core.shard import TransactionConfig, TransactionCoordinatorShard
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    PartitionLeader,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.kernel.tasks import Notifier, Superseded, unless_superseded
from quorate.kernel.topic_names import TRANSACTION_STATE
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.store import MetadataStore
from quorate.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quorate.replication.partition import Partition
from quorate.transport.peers.errors import PeerError

logger = logging.getLogger(__name__)

ResultType = TypeVar("ResultType", bound=Result)
TransactionShardRunner = ShardRunner[Command, Result, TransactionRecord, MarkersWritten, SendMarkers]


class TransactionCoordinator(Coordinator[TransactionalId, Command, Result, TransactionShardRunner]):
    def __init__(
        self,
        environment: CoordinatorEnvironment,
        requests: AskNode,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        super().__init__(environment, TRANSACTION_STATE)
        self._new_producer_id = new_producer_id
        self._markers = MarkerSender(requests, environment.metadata, environment.loop)

    async def ask(self, command: IdCommand, result_type: type[ResultType]) -> ResultType:
        """Have the id's shard carry out the command, if this node coordinates its transactions."""
        result = await self._ask_shard(command.transactional_id, command)
        if isinstance(result, ProducerIdNeeded) and isinstance(command, InitProducer | EndTransaction):
            try:
                new_id = await self._new_producer_id()
            except KafkaError as error:
                result = refusal(command, error.code)
            else:
                with_id = msgspec.structs.replace(command, new_producer_id=new_id)
                result = await self._ask_shard(command.transactional_id, with_id)
        assert isinstance(result, result_type)
        return result

    async def list_transactions(self, command: ListTransactions) -> ListTransactionsResult:
        results = [cast(ListTransactionsResult, result) for result in await self._ask_all_shards(command)]
        return ListTransactionsResult(
            error=next((result.error for result in results if result.error is not ErrorCode.NONE), ErrorCode.NONE),
            transactions=tuple(transaction for result in results for transaction in result.transactions),
        )

    # What tells transactions from groups.

    def _new_runner(self, partition: Partition) -> TransactionShardRunner:
        environment = self._environment
        return ShardRunner(
            TransactionCoordinatorShard(self._config()),
            CoordinatorLog(partition, records, environment.loop, environment.executor),
            loop=environment.loop,
            clock=environment.clock,
            on_failure=self._runner_failed,
            own_work=partial(self._send_markers, partition.leader_epoch),
        )

    async def _send_markers(self, coordinator_epoch: LeaderEpoch, effect: SendMarkers) -> MarkersWritten:
        await self._markers.send(effect.markers, coordinator_epoch)
        return MarkersWritten(markers=effect.markers)

    def _refusal(self, command: Command, error: ErrorCode) -> Result:
        return refusal(command, error)

    def _binds(self, result: Result) -> bool:
        return binds(result)

    def _topic_to_create(self) -> CreateTopic:
        setting = self._environment.int_config
        return CreateTopic(
            name=TRANSACTION_STATE,
            partition_count=setting("transaction.state.log.num.partitions"),
            replication_factor=setting("transaction.state.log.replication.factor"),
            replication_factor_is_upper_bound=True,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(setting("transaction.state.log.min.isr")),
                "segment.bytes": str(setting("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )

    def _config(self) -> TransactionConfig:
        setting = self._environment.int_config
        return TransactionConfig(
            max_timeout_ms=setting("transaction.max.timeout.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            timeout_check_interval_ms=setting("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_check_interval_ms=setting("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )


_MARKERS_VERSION = 2
_ATTEMPT_TIMEOUT_MS = 10_000
_PAUSE_MIN_MS = 10
_PAUSE_MAX_MS = 500
#: Requests that may be under way to one node: the link to it has room for more, but others need it, too.
_MAX_REQUESTS_TO_NODE = 100
#: With these the partition has no use for the marker any more: a newer coordinator or producer has written its own.
_SUPERSEDED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerSender:
    def __init__(self, requests: AskNode, metadata: MetadataStore, loop: asyncio.AbstractEventLoop) -> None:
        self._requests = requests
        self._metadata = metadata
        self._loop = loop
        self._slots: dict[NodeId, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_MAX_REQUESTS_TO_NODE))
        self._leaders = Notifier(loop)
        metadata.subscribe(self._metadata_changed)

    async def send(self, markers: Markers, coordinator_epoch: LeaderEpoch) -> None:
        """Return when every partition has its marker, or is gone. Only cancelling it ends it earlier."""
        left = set(markers.partitions)
        pause_ms = _PAUSE_MIN_MS
        while True:
            left -= {partition for partition in left if self._is_gone(partition)}
            changed = self._leaders.next_change
            attempts = [
                self._attempt(leader, markers, partitions, coordinator_epoch)
                for leader, partitions in self._by_leader(left).items()
            ]
            for written in await asyncio.gather(*attempts):
                left -= written
            if not left:
                return
            logger.debug("markers not written transactional_id=%s left=%s", markers.transactional_id, left)
            await asyncio.wait([changed], timeout=pause_ms / 1000)
            pause_ms = min(pause_ms * 2, _PAUSE_MAX_MS)

    def _is_gone(self, partition: TopicPartition) -> bool:
        return self._metadata.image.partition(*partition) is None

    def _leader(self, partition: TopicPartition) -> PartitionLeader | None:
        return self._metadata.image.partition_leader(*partition)

    def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[NodeId, list[TopicPartition]]:
        led: dict[NodeId, list[TopicPartition]] = defaultdict(list)
        for partition in sorted(partitions):
            leader = self._leader(partition)
            if leader is not None:
                led[leader.node_id].append(partition)
        return led

    async def _attempt(
        self, leader: NodeId, markers: Markers, partitions: list[TopicPartition], coordinator_epoch: LeaderEpoch
    ) -> set[TopicPartition]:
        """Ask one node; returns the partitions that need no marker any more."""
        asking = self._ask(leader, _markers_request(markers, partitions, coordinator_epoch))

        def others_lead() -> bool:
            return leader not in self._by_leader(partitions)

        try:  # A node that is cut off is not waited for once others lead.
            return _settled(await unless_superseded(self._loop, asking, self._leaders, others_lead))
        except (PeerError, Superseded):
            return set()

    async def _ask(self, leader: NodeId, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        async with self._slots[leader]:
            return await self._requests.ask(
                leader, request, _MARKERS_VERSION, WriteTxnMarkersResponse, _ATTEMPT_TIMEOUT_MS
            )

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 - a listener's signature
        if delta.changed_leaders:
            self._leaders.notify()


def _markers_request(
    markers: Markers, partitions: list[TopicPartition], coordinator_epoch: LeaderEpoch
) -> WriteTxnMarkersRequest:
    indexes: dict[TopicName, list[PartitionIndex]] = defaultdict(list)
    for topic, partition in partitions:
        indexes[topic].append(partition)
    marker = WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.commits,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in indexes.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=markers.transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _settled(answer: WriteTxnMarkersResponse) -> set[TopicPartition]:
    settled = set()
    for marker in answer.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE or partition.error_code in _SUPERSEDED:
                    settled.add(TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index)))
    return settled
