"""One round of Fetch: every leader asked once, every error told apart."""

from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from quorate.client.config import ClientConfig
from quorate.client.fetch.rounds import DivergingEpoch, ReadPosition
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData
from tests.unit.client.batches import log
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import FakeCluster
from tests.unit.client.fake_fetches import SPANS, TOPIC, found, records_from, serve


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(7, 100) as running:
        running.leaders = {TOPIC: {index: ((7, 100)[index % 2], 3) for index in range(6)}}
        running.topic_ids = {TOPIC: UUID(int=7)}
        yield running


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[KafkaClient]:
    config = ClientConfig(bootstrap_servers=cluster.bootstrap)
    with KafkaClient(config, clock=FakeClock(), random=Random(1)) as opened:
        yield opened


def name(index: int) -> TopicPartition:
    return TopicPartition(TopicName(TOPIC), PartitionIndex(index))


def test_each_partition_has_its_own_outcome(cluster: FakeCluster, client: KafkaClient) -> None:
    errors = {
        1: ErrorCode.OFFSET_OUT_OF_RANGE,
        2: ErrorCode.FENCED_LEADER_EPOCH,
        3: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }

    def handler(node_id: int, wanted: FetchPartition) -> PartitionData:
        if wanted.partition in errors:
            return found(wanted, error_code=errors[wanted.partition])
        if wanted.partition == 4:
            return found(wanted, diverging_epoch=EpochEndOffset(epoch=2, end_offset=15))
        return found(wanted, records=log(*SPANS[:3]))  # Some brokers start a little before the offset.

    serve(cluster, handler)
    positions = [ReadPosition(name=name(index), next_offset=Offset(12)) for index in [*range(6), 9]]
    with client.fetch(positions) as result:
        outcomes = result.partitions
        assert {one.partition: outcomes[one].error for one in outcomes if outcomes[one].error} == {
            **errors,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert outcomes[name(4)].diverging_epoch == DivergingEpoch(LeaderEpoch(2), Offset(15))
        for index in (0, 5):
            batches = [(batch.base_offset, batch.last_offset) for batch in outcomes[name(index)].batches]
            assert batches == SPANS[1:3]
        data = outcomes[name(0)].data
    assert [len(broker.requests(FetchRequest)) for broker in cluster.brokers.values()] == [1, 1]
    with pytest.raises(ValueError, match="released"):
        bytes(data)


def test_what_holds_no_data_can_be_looked_at_again_and_again(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, lambda node_id, wanted: found(wanted, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    for _ in range(2):
        with client.fetch([ReadPosition(name=name(0), next_offset=Offset(0))]) as result:
            assert len(result.partitions[name(0)].data) == 0


def test_a_broker_that_cannot_be_asked_leaves_the_others(cluster: FakeCluster, client: KafkaClient) -> None:
    serve(cluster, lambda node_id, wanted: records_from(wanted))
    cluster.brokers[100].handlers[FetchRequest] = lambda request, header: None
    with client.fetch([ReadPosition(name=name(index), next_offset=Offset(0)) for index in (0, 1)]) as result:
        assert result.partitions[name(0)].error is ErrorCode.NONE
        assert result.partitions[name(1)].error is ErrorCode.NETWORK_EXCEPTION
        assert str(cluster.brokers[100].address) in (result.partitions[name(1)].message or "")
