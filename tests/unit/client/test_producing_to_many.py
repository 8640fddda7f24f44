"""Batches to several partitions at a time: together in requests, each partition in its own order, and failing alone."""

from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from quorate.client.config import ClientConfig
from quorate.client.errors import PartitionUnavailable
from quorate.client.idempotent_producer import AcknowledgedBatch, IdempotentProducer, ProducerIdentity, SendingEnded
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.protocol.schema import Request
from quorate.records.batch import detach, read_header
from tests.unit.client.batches import batch
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import Answer, FakeCluster

TOPIC = "orders"
TOPIC_ID = UUID(int=7)
PARTITIONS = 5
BATCHES = 12


class FakeLogs:
    """Partitions that check sequences as brokers do, led by two nodes, with faults of their own."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.sequences: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.requests: list[tuple[int, list[int]]] = []
        self.refusing: set[int] = set()
        self.random: Random | None = None
        self._cluster = cluster
        cluster.leaders = {TOPIC: {index: ((100, 4001)[index % 2], 3) for index in range(PARTITIONS)}}
        cluster.topic_ids = {TOPIC: TOPIC_ID}
        cluster.handle(ProduceRequest, self.produce)

    def produce(self, node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, ProduceRequest)
        (topic,) = request.topic_data
        self.requests.append((node_id, [data.index for data in topic.partition_data]))
        fault = self.random.choice(["", "", "", "move", "refuse", "lose the answer"]) if self.random else ""
        if fault == "move":
            moved = self.random.randrange(PARTITIONS) if self.random else 0
            leader, epoch = self._cluster.leaders[TOPIC][moved]
            self._cluster.leaders[TOPIC][moved] = (4101 - leader, epoch + 1)
        parts = []
        for data in topic.partition_data:
            assert isinstance(data.records, memoryview)
            is_refused = data.index in self.refusing or (fault == "refuse" and data.index % 2 == 0)
            parts.append(self._append(node_id, data.index, data.records, is_refused))
        answer = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=parts[::-1])]
        )
        return None if fault == "lose the answer" else answer

    def _append(self, node_id: int, index: int, records: memoryview, is_refused: bool) -> PartitionProduceResponse:
        leader, epoch = self._cluster.leaders[TOPIC][index]
        hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if node_id != leader:
            return _part(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, hint=hint)
        if is_refused:
            return _part(index, ErrorCode.NOT_ENOUGH_REPLICAS)
        found, sequences = read_header(records), self.sequences[index]
        if found.base_sequence in sequences:
            return _part(index, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        if found.base_sequence != len(sequences):
            # What comes behind a refused batch is refused the same way by a broker of Quorate.
            return _part(index, ErrorCode.NOT_ENOUGH_REPLICAS)
        sequences += range(found.base_sequence, found.base_sequence + found.record_count)
        return _part(index, ErrorCode.NONE, base_offset=found.base_sequence)


def _part(
    index: int, code: ErrorCode, *, base_offset: int = -1, hint: LeaderIdAndEpoch | None = None
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=base_offset, current_leader=hint or LeaderIdAndEpoch()
    )


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    with FakeCluster(100, 4001) as running:
        yield FakeLogs(running)


@pytest.fixture
def producer(logs: FakeLogs) -> Iterator[IdempotentProducer]:
    config = ClientConfig(bootstrap_servers=logs._cluster.bootstrap)
    with KafkaClient(config, clock=FakeClock(), random=Random(1)) as client:
        yield client.idempotent_producer(ProducerIdentity(ProducerId(1234), ProducerEpoch(5)))


def begin(producer: IdempotentProducer) -> None:
    for index in range(PARTITIONS):
        producer.begin(TOPIC, index, (detach(batch(0, 2)) for _ in range(BATCHES)))


def finish(producer: IdempotentProducer) -> tuple[dict[int, list[int]], dict[int, object]]:
    """Of each partition: the sequences that were acknowledged, and the error that it ended with."""
    acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ended: dict[int, object] = {}
    while producer.is_sending:
        for outcome in producer.step():
            match outcome:
                case AcknowledgedBatch(partition=partition, base_sequence=sequence):
                    acknowledged[partition.partition].append(sequence)
                case SendingEnded(partition=partition, error=error):
                    ended[partition.partition] = error
    return acknowledged, ended


ALL = list(range(0, 2 * BATCHES, 2))


def test_partitions_of_one_leader_share_their_requests(logs: FakeLogs, producer: IdempotentProducer) -> None:
    begin(producer)
    acknowledged, ended = finish(producer)

    assert acknowledged == dict.fromkeys(range(PARTITIONS), ALL)
    assert ended == dict.fromkeys(range(PARTITIONS))
    assert {(node_id, *indexes) for node_id, indexes in logs.requests} == {(100, 0, 2, 4), (4001, 1, 3)}
    assert len(logs.requests) == 2 * BATCHES


def test_a_partition_that_is_refused_ends_alone(logs: FakeLogs, producer: IdempotentProducer) -> None:
    logs.refusing = {2}
    begin(producer)
    acknowledged, ended = finish(producer)

    assert isinstance(ended.pop(2), PartitionUnavailable)
    assert acknowledged.pop(2) == []
    assert acknowledged == dict.fromkeys(acknowledged, ALL)
    assert ended == dict.fromkeys(ended)
    assert producer.next_sequence(TOPIC, 2) == 0
    assert producer.next_sequence(TOPIC, 1) == 2 * BATCHES


@pytest.mark.parametrize("seed", range(20))
def test_every_batch_is_appended_once_and_in_order_whatever_fails(
    logs: FakeLogs, producer: IdempotentProducer, seed: int
) -> None:
    logs.random = Random(seed)
    begin(producer)
    acknowledged, ended = finish(producer)

    assert ended == dict.fromkeys(range(PARTITIONS))
    assert acknowledged == dict.fromkeys(range(PARTITIONS), ALL)
    assert logs.sequences == {index: list(range(2 * BATCHES)) for index in range(PARTITIONS)}
