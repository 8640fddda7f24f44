"""A node of Quorate that takes every batch and keeps none: the target that measures its clients.

Everything but Produce and ListOffsets is the node's own, so that any client can make topics on it and write to them. A
batch is not checked and not stored; its header says how many offsets it takes, and that is all that is remembered.
"""

import sys
from collections import Counter
from pathlib import Path

import msgspec

from quorate.broker.handlers import APIS
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.cli.serve import run_from_file
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from quorate.records.batch import read_header
from quorate.replication.partition import Partition

_TOPIC_IDS_FROM = 13


class Sink:
    def __init__(self) -> None:
        # By partition object: that of a topic which is made again begins at 0.
        self._end_offsets: Counter[Partition] = Counter()

    def produce(self, services: Services, context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        self._take(_partition(services, context.api_version, topic, data.index), data)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def list_offsets(
        self, services: Services, _context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        """The end of each partition, whatever was asked for."""
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._end(services, TopicName(topic.name), PartitionIndex(wanted.partition_index))
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _take(self, partition: Partition, data: PartitionProduceData) -> PartitionProduceResponse:
        assert isinstance(data.records, memoryview)
        base_offset = self._end_offsets[partition]
        self._end_offsets[partition] = base_offset + read_header(data.records).last_offset_delta + 1
        return PartitionProduceResponse(index=data.index, base_offset=base_offset, log_start_offset=0)

    def _end(self, services: Services, topic: TopicName, index: PartitionIndex) -> ListOffsetsPartitionResponse:
        partition = services.partitions.led(topic, index)
        return ListOffsetsPartitionResponse(
            partition_index=index, offset=self._end_offsets[partition], leader_epoch=partition.leader_epoch
        )


def _partition(services: Services, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    if api_version >= _TOPIC_IDS_FROM:
        return services.partitions.led_by_key((topic.topic_id, index))
    return services.partitions.led(TopicName(topic.name), PartitionIndex(index))


def main() -> None:
    sink = Sink()
    for request, handle in ((ProduceRequest, sink.produce), (ListOffsetsRequest, sink.list_offsets)):
        APIS[request.API_KEY] = msgspec.structs.replace(APIS[request.API_KEY], handle=handle)
    run_from_file(Path(sys.argv[1]), lambda: None)


if __name__ == "__main__":
    main()
