"""Has the partitions of a transaction write how it ended, each at its leader, through every change of leaders.

Who leads comes from the metadata image. A marker that is sent again after a lost answer does no harm, so whatever is
not certain is sent again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection

from quorate.coordination.coordinator import AskNode
from quorate.coordination.transactions.core.effects import Markers
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, PartitionLeader, TopicName, TopicPartition
from quorate.kernel.tasks import Notifier, Superseded, unless_superseded
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.store import MetadataStore
from quorate.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quorate.transport.peers.errors import PeerError

logger = logging.getLogger(__name__)

_VERSION = 2
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
        asking = self._ask(leader, _request(markers, partitions, coordinator_epoch))

        def others_lead() -> bool:
            return leader not in self._by_leader(partitions)

        try:  # A node that is cut off is not waited for once others lead.
            return _settled(await unless_superseded(self._loop, asking, self._leaders, others_lead))
        except (PeerError, Superseded):
            return set()

    async def _ask(self, leader: NodeId, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        async with self._slots[leader]:
            return await self._requests.ask(leader, request, _VERSION, WriteTxnMarkersResponse, _ATTEMPT_TIMEOUT_MS)

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 - a listener's signature
        if delta.changed_leaders:
            self._leaders.notify()


def _request(
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
