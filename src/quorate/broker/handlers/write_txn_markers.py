"""WriteTxnMarkers, versions 1 and 2: a coordinator ends transactions in the partitions that this node leads.

Answered when the high watermark has passed the markers, so that no later leader can be without them. In a partition of
``__consumer_offsets`` the marker also decides about the offsets that were committed in the transaction.
"""

import asyncio
from collections.abc import Sequence

from quorate.broker.api import Api
from quorate.broker.produce.pending import PendingProduce, UncommittedWrite
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quorate.records.control import EndTransactionMarker, TransactionEnd

_TIMEOUT_MS = 30_000
_OF_COORDINATORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


async def write_txn_markers(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    results = await asyncio.gather(*(_write(services, marker) for marker in request.markers))
    return WriteTxnMarkersResponse(markers=results)


async def _write(services: Services, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    end = _end(marker)
    partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    codes, group_codes = await asyncio.gather(
        _append(services, end, partitions), _end_in_groups(services, end, partitions)
    )
    codes |= group_codes
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _end(marker: WritableTxnMarker) -> TransactionEnd:
    return TransactionEnd(
        producer_id=ProducerId(marker.producer_id),
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        marker=EndTransactionMarker(is_commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch),
        transaction_version=marker.transaction_version,
    )


async def _append(
    services: Services, end: TransactionEnd, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    uncommitted: list[UncommittedWrite] = []
    now_ms = services.clock.now_ms()
    for position, (topic, index) in enumerate(partitions):
        if topic == CONSUMER_OFFSETS:
            continue
        try:
            partition = services.partitions.led(TopicName(topic), PartitionIndex(index))
            if partition.settings.is_being_restored:
                continue  # Nothing of the transaction was taken there, and a marker would take an offset away.
            info = partition.append_marker(end, now_ms)
        except KafkaError as error:
            codes[topic, index] = error.code
            continue
        uncommitted.append((position, partition, Offset(info.last_offset + 1)))
    if uncommitted:
        failures = await PendingProduce(services.loop, _TIMEOUT_MS, uncommitted).future
        codes |= {partitions[position]: failure.code for position, failure in failures.items()}
    return codes


async def _end_in_groups(
    services: Services, end: TransactionEnd, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    codes = {}
    for topic, index in partitions:
        if topic == CONSUMER_OFFSETS:
            code = await services.groups.end_transaction(PartitionIndex(index), end)
            # The sender knows the errors of partitions only; after this one it looks for the leader and tries again.
            codes[topic, index] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _OF_COORDINATORS else code
    return codes


WRITE_TXN_MARKERS = Api(
    request=WriteTxnMarkersRequest,
    min_version=1,
    max_version=2,
    handle=write_txn_markers,
    parts=(Parts(of=("markers", "topics", "partition_indexes"), into=("markers", "topics", "partitions")),),
)
