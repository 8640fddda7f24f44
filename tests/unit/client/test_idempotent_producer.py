"""Batches appended exactly once, by brokers that lose answers, refuse and move."""

from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from quorate.client.config import ClientConfig
from quorate.client.errors import PartitionUnavailable, TopicReplaced
from quorate.client.idempotent_producer import ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicId
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.protocol.schema import Request
from quorate.records.batch import DetachedBatch, check_crc, detach, read_header
from tests.unit.client.batches import batch
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import Answer, FakeCluster

TOPIC = "orders"
NO_HINT = LeaderIdAndEpoch()


class FakeLog:
    """A partition that checks sequences as a broker does. ``faults`` say what happens to the next requests."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.sequences: list[int] = []
        self.faults: list[str] = []
        self._cluster = cluster
        cluster.handle(ProduceRequest, self.produce)

    def produce(self, node_id: int, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, ProduceRequest)
        fault = self.faults.pop(0) if self.faults else ""
        leader, epoch = self._cluster.leaders[TOPIC][0]
        if fault == "move":
            leader, epoch = self._cluster.leaders[TOPIC][0] = (4001, epoch + 1)
        if node_id != leader:
            hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            return self._answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint=hint)
        if fault == "another topic":
            return self._answer(ErrorCode.UNKNOWN_TOPIC_ID)
        if fault == "refuse":
            return self._answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        answer = self._append(request)
        return None if fault == "lose the answer" else answer

    def _append(self, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        found = read_header(records)
        check_crc(records, 0, found)
        assert (found.producer_id, found.producer_epoch) == (1234, 5)
        if found.base_sequence in self.sequences:
            return self._answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        if found.base_sequence != len(self.sequences):
            return self._answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self.sequences += range(found.base_sequence, found.base_sequence + found.record_count)
        return self._answer(ErrorCode.NONE, base_offset=found.base_sequence)

    def _answer(self, code: ErrorCode, *, base_offset: int = -1, hint: LeaderIdAndEpoch = NO_HINT) -> ProduceResponse:
        part = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset, current_leader=hint)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, topic_id=UUID(int=7), partition_responses=[part])]
        )


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(100, 4001) as running:
        running.leaders = {TOPIC: {0: (100, 3)}}
        running.topic_ids = {TOPIC: UUID(int=7)}
        running.handle(
            InitProducerIdRequest,
            lambda node_id, request, header: InitProducerIdResponse(producer_id=1234, producer_epoch=5),
        )
        yield running


@pytest.fixture
def log(cluster: FakeCluster) -> FakeLog:
    return FakeLog(cluster)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(cluster: FakeCluster, clock: FakeClock) -> Iterator[KafkaClient]:
    with KafkaClient(ClientConfig(bootstrap_servers=cluster.bootstrap), clock=clock, random=Random(1)) as opened:
        yield opened


def test_sequences_count_records(log: FakeLog, client: KafkaClient) -> None:
    producer = client.idempotent_producer()
    assert producer.identity == ProducerIdentity(ProducerId(1234), ProducerEpoch(5))
    assert producer.send(TOPIC, 0, detach(batch(0, 3))).base_offset == 0
    assert producer.send(TOPIC, 0, detach(batch(0, 2))).base_offset == 3
    assert producer.next_sequence(TOPIC, 0) == 5


@pytest.mark.parametrize(
    "faults",
    [
        ["lose the answer"],
        ["refuse"],
        ["move"],
        ["", "", "lose the answer", "", "", "lose the answer"],
        ["", "move", "", "refuse", "lose the answer", "", "refuse"],
        ["refuse", "refuse", "lose the answer", "lose the answer", "lose the answer"],
    ],
    ids=lambda faults: "+".join(fault or "ok" for fault in faults),
)
def test_every_batch_is_appended_once_and_in_order(log: FakeLog, client: KafkaClient, faults: list[str]) -> None:
    log.faults = list(faults)
    produced = list(client.idempotent_producer().send_all(TOPIC, 0, (detach(batch(0, 2)) for _ in range(12))))
    assert log.sequences == list(range(24))
    assert [one.base_sequence for one in produced] == list(range(0, 24, 2))


def test_a_batch_that_the_broker_has_already_counts_as_sent(log: FakeLog, client: KafkaClient) -> None:
    log.faults = ["lose the answer"]
    assert client.idempotent_producer().send(TOPIC, 0, detach(batch(0, 3))).base_offset is None
    assert log.sequences == [0, 1, 2]


def test_the_hint_is_followed_without_a_delay(log: FakeLog, client: KafkaClient, clock: FakeClock) -> None:
    log.faults = ["move"]
    client.idempotent_producer().send(TOPIC, 0, detach(batch(0, 1)))
    assert not any(clock.slept_ms)
    assert client.leaders_followed == 1


def test_records_that_the_broker_lost_are_not_papered_over(log: FakeLog, client: KafkaClient) -> None:
    producer = client.idempotent_producer()
    producer.send(TOPIC, 0, detach(batch(0, 3)))
    log.sequences.clear()
    with pytest.raises(KafkaError, match="orders-0") as caught:
        producer.send(TOPIC, 0, detach(batch(0, 1)))
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_an_error_the_same_batch_can_be_sent_again(log: FakeLog, client: KafkaClient) -> None:
    producer = client.idempotent_producer()
    log.faults = ["refuse"] * 1000
    with pytest.raises(PartitionUnavailable, match=r"orders-0.*leader 100.*NOT_ENOUGH_REPLICAS"):
        list(producer.send_all(TOPIC, 0, [detach(batch(0, 2)), detach(batch(0, 2))]))
    log.faults = []
    list(producer.send_all(TOPIC, 0, [detach(batch(0, 2)), detach(batch(0, 2))]))
    assert log.sequences == [0, 1, 2, 3]


def test_a_producer_goes_on_where_an_earlier_one_stopped(log: FakeLog, client: KafkaClient) -> None:
    first = client.idempotent_producer()
    first.send(TOPIC, 0, detach(batch(0, 3)))
    second = client.idempotent_producer(first.identity)
    second.set_next_sequence(TOPIC, 0, first.next_sequence(TOPIC, 0))
    second.send(TOPIC, 0, detach(batch(0, 2)))
    assert log.sequences == [0, 1, 2, 3, 4]


def test_topic_that_is_not_the_one_meant_gets_nothing(cluster: FakeCluster, log: FakeLog, client: KafkaClient) -> None:
    with pytest.raises(TopicReplaced):
        list(client.idempotent_producer().send_all(TOPIC, 0, [detach(batch(0, 1))], topic_id=TopicId(UUID(int=8))))
    assert log.sequences == []


def test_topic_that_was_made_anew_in_the_middle_gets_nothing(
    cluster: FakeCluster, log: FakeLog, client: KafkaClient
) -> None:
    meant = TopicId(UUID(int=7))
    sending = client.idempotent_producer().send_all(TOPIC, 0, (detach(batch(0, 1)) for _ in range(20)), topic_id=meant)
    next(sending)
    cluster.topic_ids = {TOPIC: UUID(int=8)}
    log.faults = ["another topic"] * 1000
    before = list(log.sequences)

    with pytest.raises(TopicReplaced):
        list(sending)

    assert len(log.sequences) <= len(before) + 5


def test_no_more_than_five_are_in_flight(cluster: FakeCluster, client: KafkaClient, log: FakeLog) -> None:
    taken = 0

    def batches() -> Iterator[DetachedBatch]:
        nonlocal taken
        for _ in range(20):
            taken += 1
            yield detach(batch(0, 1))

    acknowledged = 0
    for _ in client.idempotent_producer().send_all(TOPIC, 0, batches()):
        acknowledged += 1
        assert taken - acknowledged <= 5
    assert acknowledged == 20
