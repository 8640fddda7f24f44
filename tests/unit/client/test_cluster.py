"""Router, connections and retries together: refreshes, the pool, calls that follow leaders and coordinators."""

import logging
import threading
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from quorate.client.admin.groups import OffsetAndMetadata
from quorate.client.cluster import Cluster
from quorate.client.config import ClientConfig
from quorate.client.errors import NoBrokerAnswered, PartitionUnavailable
from quorate.client.kafka_client import KafkaClient
from quorate.client.offsets import ListedOffset
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from quorate.protocol.messages.metadata import MetadataRequest
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from quorate.protocol.schema import Request
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import Answer, FakeCluster

TOPIC = TopicName("orders")
NAMES = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(12)]


@pytest.fixture
def brokers() -> Iterator[FakeCluster]:
    with FakeCluster(7, 100, 4001) as running:
        running.leaders = {TOPIC: {index: ((7, 100, 4001)[index % 3], 3) for index in range(12)}}
        running.handle(ListOffsetsRequest, listed)
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(brokers: FakeCluster, clock: FakeClock) -> Iterator[KafkaClient]:
    config = ClientConfig(bootstrap_servers=brokers.bootstrap)
    with KafkaClient(config, clock=clock, random=Random(1)) as opened:
        yield opened


def listed(
    node_id: int,
    request: Request,
    header: RequestHeader,
    refused: frozenset[int] = frozenset(),
    code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER,
) -> Answer:
    """The offset is the id of the broker that answers, so that the test sees who was asked."""
    assert isinstance(request, ListOffsetsRequest)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        offset=node_id,
                        error_code=code if wanted.partition_index in refused else 0,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def log_folders(node_id: int, request: Request, header: RequestHeader, *, with_future: bool = False) -> Answer:
    """The size tells which broker answered for which partition."""
    assert isinstance(request, DescribeLogDirsRequest)

    def folder(is_future: bool) -> DescribeLogDirsResult:
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=1 if is_future else node_id * 1000 + index,
                        is_future_key=is_future,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topics or ()
        ]
        return DescribeLogDirsResult(log_dir="/data", topics=topics)

    folders = [folder(False), *([folder(True)] if with_future else [])]
    return DescribeLogDirsResponse(results=[*folders, DescribeLogDirsResult(error_code=56, log_dir="/broken")])


def refreshes(brokers: FakeCluster) -> int:
    return sum(len(broker.requests(MetadataRequest)) for broker in brokers.brokers.values())


def test_each_leader_is_asked_once_for_all_its_partitions(brokers: FakeCluster, client: KafkaClient) -> None:
    offsets = client.offsets.latest(NAMES)
    assert [offsets[name].offset for name in NAMES] == [(7, 100, 4001)[index % 3] for index in range(12)]
    assert [len(broker.requests(ListOffsetsRequest)) for broker in brokers.brokers.values()] == [1, 1, 1]


def test_one_connection_to_each_broker_serves_all_partitions(brokers: FakeCluster, client: KafkaClient) -> None:
    for _ in range(5):
        client.offsets.latest(NAMES)
    assert [broker.connections for broker in brokers.brokers.values()] == [1, 1, 1]


def test_one_leader_change_clears_no_connection(brokers: FakeCluster, client: KafkaClient, clock: FakeClock) -> None:
    client.offsets.latest(NAMES)
    brokers.leaders[TOPIC][0] = (100, 4)
    clock.advance(30_000)
    assert client.offsets.latest(NAMES)[NAMES[0]].offset == 100
    assert client.leaders_followed == 1
    assert [broker.connections for broker in brokers.brokers.values()] == [1, 1, 1]


def test_metadata_is_refreshed_every_30_seconds(brokers: FakeCluster, client: KafkaClient, clock: FakeClock) -> None:
    client.offsets.latest(NAMES)
    clock.advance(29_999)
    client.offsets.latest(NAMES)
    assert refreshes(brokers) == 1
    clock.advance(1)
    client.offsets.latest(NAMES)
    assert refreshes(brokers) == 2


def test_a_failed_refresh_is_logged_and_tried_again(
    brokers: FakeCluster, client: KafkaClient, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    client.offsets.latest(NAMES)
    for broker in brokers.brokers.values():
        broker.handlers[MetadataRequest] = lambda request, header: None
    clock.advance(30_000)
    with caplog.at_level(logging.WARNING):
        assert client.offsets.latest(NAMES)[NAMES[0]].offset == 7
    assert "metadata refresh failed" in caplog.text
    for broker in brokers.brokers.values():
        broker.handlers[MetadataRequest] = brokers.metadata
    brokers.leaders[TOPIC][0] = (100, 4)
    clock.advance(1_200)
    assert client.offsets.latest(NAMES)[NAMES[0]].offset == 100


def test_partitions_that_are_refused_are_asked_again_and_no_others(
    brokers: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    def refuse_first(request: Request, header: RequestHeader) -> Answer:
        brokers.leaders[TOPIC][0] = (4001, 4)
        return listed(7, request, header, refused=frozenset({0}))

    brokers.brokers[7].handlers[ListOffsetsRequest] = refuse_first
    offsets = client.offsets.latest(NAMES)
    assert offsets[NAMES[0]].offset == 4001
    again = [
        wanted.partition_index
        for request in brokers.brokers[4001].requests(ListOffsetsRequest)[1:]
        for topic in request.topics  # type: ignore[attr-defined]
        for wanted in topic.partitions
    ]
    assert again == [0]
    assert sum(clock.slept_ms) <= 120


def test_one_error_names_the_partition_that_stays_refused(
    brokers: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    brokers.brokers[7].handlers[ListOffsetsRequest] = lambda request, header: listed(
        7, request, header, refused=frozenset({3})
    )
    with pytest.raises(PartitionUnavailable, match=r"orders-3 .*leader 7 at .*NOT_LEADER_OR_FOLLOWER"):
        client.offsets.latest(NAMES)
    assert sum(clock.slept_ms) >= 55_000


def test_partitions_without_an_answer_have_an_error_and_hold_up_the_others_for_one_deadline(
    brokers: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    brokers.brokers[7].handlers[ListOffsetsRequest] = lambda request, header: listed(
        7, request, header, refused=frozenset({0, 3})
    )
    offsets = client.offsets.try_latest(NAMES)
    dead = [NAMES[0], NAMES[3]]
    for name in dead:
        assert isinstance(offsets[name], PartitionUnavailable)
        assert f"partition {name} is unavailable" in str(offsets[name])
    assert all(isinstance(offsets[name], ListedOffset) for name in NAMES if name not in dead)
    assert 55_000 <= sum(clock.slept_ms) <= 65_000


def test_what_cannot_get_better_is_no_more_than_that_partitions_error(
    brokers: FakeCluster, client: KafkaClient, clock: FakeClock
) -> None:
    brokers.brokers[7].handlers[ListOffsetsRequest] = lambda request, header: listed(
        7, request, header, refused=frozenset({3}), code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    offsets = client.offsets.try_earliest(NAMES)
    assert [name for name in NAMES if isinstance(offsets[name], KafkaError)] == [NAMES[3]]
    assert clock.slept_ms == []
    with pytest.raises(KafkaError, match="cannot list the offsets of partition orders-3"):
        client.offsets.earliest(NAMES)


class TestLogBytes:
    """The sizes of logs are a guide: who does not tell them is left out, and nobody waits."""

    def test_each_leader_tells_the_sizes_of_what_it_leads(self, brokers: FakeCluster, client: KafkaClient) -> None:
        brokers.handle(DescribeLogDirsRequest, log_folders)
        sizes = client.cluster.log_bytes(NAMES)
        assert [sizes[name] for name in NAMES] == [(7, 100, 4001)[index % 3] * 1000 + index for index in range(12)]

    def test_a_copy_on_its_way_to_another_folder_does_not_count(
        self, brokers: FakeCluster, client: KafkaClient
    ) -> None:
        brokers.handle(DescribeLogDirsRequest, partial(log_folders, with_future=True))
        assert client.cluster.log_bytes(NAMES[:1]) == {NAMES[0]: 7000}

    @pytest.mark.parametrize(
        "refusal", [None, DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    )
    def test_a_broker_that_refuses_is_left_out(
        self, brokers: FakeCluster, client: KafkaClient, clock: FakeClock, refusal: Answer
    ) -> None:
        brokers.handle(DescribeLogDirsRequest, log_folders)
        brokers.brokers[7].handlers[DescribeLogDirsRequest] = lambda request, header: refusal
        assert set(client.cluster.log_bytes(NAMES)) == {name for name in NAMES if name.partition % 3}
        assert clock.slept_ms == []

    def test_partitions_without_a_leader_are_left_out(self, brokers: FakeCluster, client: KafkaClient) -> None:
        brokers.handle(DescribeLogDirsRequest, log_folders)
        brokers.leaders[TOPIC][0] = (-1, 4)
        assert set(client.cluster.log_bytes(NAMES)) == set(NAMES[1:])


def test_every_address_is_in_the_error_when_none_answers(clock: FakeClock) -> None:
    config = ClientConfig(bootstrap_servers=("127.0.0.1:1", "127.0.0.1:2"), retry_timeout_ms=500)
    with KafkaClient(config, clock=clock) as client, pytest.raises(NoBrokerAnswered) as caught:
        client.cluster.metadata([])
    assert "127.0.0.1:1" in str(caught.value)
    assert "127.0.0.1:2" in str(caught.value)


def test_a_client_that_is_closed_says_so(brokers: FakeCluster, client: KafkaClient) -> None:
    client.close()
    with pytest.raises(NoBrokerAnswered, match="this client is closed"):
        client.cluster.metadata([])


def test_threads_refresh_once(brokers: FakeCluster) -> None:
    cluster = Cluster(ClientConfig(bootstrap_servers=brokers.bootstrap))
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait(30)
        cluster.want([TOPIC])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    cluster.close()
    assert refreshes(brokers) == 1


def test_more_connections_are_opened_only_while_all_are_busy(brokers: FakeCluster, clock: FakeClock) -> None:
    config = ClientConfig(bootstrap_servers=brokers.bootstrap, connections_per_broker=2)
    cluster = Cluster(config, clock=clock)
    address = brokers.brokers[7].address
    first = cluster.connection_to(address)
    assert cluster.connection_to(address) is first
    pending = first.send(ListOffsetsRequest(), ListOffsetsResponse, 5)
    second = cluster.connection_to(address)
    assert second is not first
    waiting = second.send(ListOffsetsRequest(), ListOffsetsResponse, 5)
    assert cluster.connection_to(address) in (first, second)
    first.wait(pending)
    second.wait(waiting)
    assert brokers.brokers[7].connections == 2
    cluster.close()


class TestCoordinators:
    @pytest.fixture(autouse=True)
    def _coordinators(self, brokers: FakeCluster) -> None:
        self.coordinator = 100
        self.commits: list[int] = []
        self.find_errors: list[int] = []
        brokers.handle(FindCoordinatorRequest, lambda node_id, request, header: self.find(brokers))
        brokers.handle(OffsetCommitRequest, self.commit)

    def find(self, brokers: FakeCluster) -> Answer:
        if self.find_errors:
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=self.find_errors.pop())])
        address = brokers.brokers[self.coordinator].address
        found = Coordinator(key="g", node_id=self.coordinator, host=address.host, port=address.port)
        return FindCoordinatorResponse(coordinators=[found])

    def commit(self, node_id: int, request: Request, header: RequestHeader) -> Answer:
        self.commits.append(node_id)
        code = ErrorCode.NONE if node_id == self.coordinator else ErrorCode.NOT_COORDINATOR
        part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=[part])])

    def test_it_is_asked_for_once_and_again_after_it_moved(self, client: KafkaClient) -> None:
        offsets = {NAMES[0]: OffsetAndMetadata(offset=Offset(1))}
        client.groups.commit_offsets("g", offsets)
        client.groups.commit_offsets("g", offsets)
        self.coordinator = 4001
        client.groups.commit_offsets("g", offsets)
        assert self.commits == [100, 100, 100, 4001]

    def test_it_is_waited_for(self, client: KafkaClient, clock: FakeClock) -> None:
        self.find_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        client.groups.commit_offsets("g", {NAMES[0]: OffsetAndMetadata(offset=Offset(1))})
        assert len(clock.slept_ms) == 2

    def test_a_refusal_is_told_at_once(self, client: KafkaClient, clock: FakeClock) -> None:
        self.find_errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError, match="group g"):
            client.groups.commit_offsets("g", {NAMES[0]: OffsetAndMetadata(offset=Offset(1))})
        assert clock.slept_ms == []
