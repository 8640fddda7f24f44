"""Which idempotent producers a partition remembers, and which of them have a transaction open (KIP-664)."""

from collections.abc import Iterable, Iterator

import msgspec

from quorate.client.answers import error_code
from quorate.client.cluster import Cluster
from quorate.client.leader_calls import LeaderCall, PartitionAnswer, by_topic, call_leaders
from quorate.client.routing import Route
from quorate.kernel.ids import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition
from quorate.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


class ActiveProducer(msgspec.Struct, frozen=True, kw_only=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    #: None where no transaction is open.
    current_transaction_start_offset: Offset | None


class Producers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ActiveProducer]]:
        call = LeaderCall(
            what="describe the producers of", response_type=DescribeProducersResponse, build=_build, read=_read
        )
        return call_leaders(self._cluster, call, dict.fromkeys(partitions))


def _build(routes: list[tuple[Route, None]]) -> DescribeProducersRequest:
    topics = by_topic(route.partition for route, _ in routes)
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )


def _read(answer: DescribeProducersResponse) -> Iterator[PartitionAnswer[list[ActiveProducer]]]:
    for topic in answer.topics:
        for found in topic.partitions:
            producers = [
                ActiveProducer(
                    producer_id=ProducerId(state.producer_id),
                    producer_epoch=ProducerEpoch(state.producer_epoch),
                    last_sequence=state.last_sequence,
                    last_timestamp=state.last_timestamp,
                    coordinator_epoch=state.coordinator_epoch,
                    current_transaction_start_offset=(
                        Offset(state.current_txn_start_offset) if state.current_txn_start_offset >= 0 else None
                    ),
                )
                for state in found.active_producers
            ]
            yield PartitionAnswer(
                TopicPartition(TopicName(topic.name), PartitionIndex(found.partition_index)),
                error_code(found.error_code),
                producers,
                found.error_message,
            )
