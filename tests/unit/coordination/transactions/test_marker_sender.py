"""Markers reach every partition, whoever leads it by then and whatever is lost on the way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from quorate.coordination.transactions.coordinator import MarkerSender
from quorate.coordination.transactions.core.effects import Markers
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    PartitionLeader,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.metadata.core.image import Delta, MetadataImage, TopicIdPartition
from quorate.metadata.store import Listener, MetadataStore
from quorate.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quorate.transport.peers.errors import PeerTimeout, PeerUnreachable
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import until

P0, P1, P2 = (TopicPartition(TopicName("orders"), PartitionIndex(index)) for index in range(3))
MARKERS = Markers(
    transactional_id=TransactionalId("payments"),
    producer_id=ProducerId(7),
    producer_epoch=ProducerEpoch(4),
    commits=True,
    partitions=frozenset({P0, P1, P2}),
    transaction_version=2,
)
#: What a node says about a partition, one after the other; the last for ever.
Answers = dict[tuple[int, TopicPartition], list[ErrorCode]]


class Metadata:
    """Who leads what, as far as a test says; stands for the store and its image."""

    def __init__(self, leaders: dict[TopicPartition, int | None]) -> None:
        self.leaders = leaders
        self.listeners: list[Listener] = []

    @property
    def image(self) -> "Metadata":
        return self

    def partition(self, *name: object) -> object:
        return name if name in self.leaders else None

    def partition_leader(self, *name: object) -> PartitionLeader | None:
        node_id = self.leaders.get(cast(TopicPartition, name))
        return None if node_id is None else PartitionLeader(NodeId(node_id), LeaderEpoch(1))

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def move(self, partition: TopicPartition, leader: int | None) -> None:
        self.leaders[partition] = leader
        changed = TopicIdPartition(NO_TOPIC_ID, *partition)
        for listener in self.listeners:
            listener(MetadataImage(), Delta(changed_leaders=(changed,)))


class Cluster:
    def __init__(self, leaders: dict[TopicPartition, int | None]) -> None:
        self.metadata = Metadata(leaders)
        self.answers: Answers = {}
        #: What is raised instead of an answer; None hangs.
        self.failures: dict[int, list[Exception | None]] = {}
        self.asked: list[tuple[int, set[TopicPartition]]] = []
        self.requests: list[WriteTxnMarkersRequest] = []
        loop = asyncio.get_running_loop()
        self.sender = MarkerSender(cast(Any, self), cast(MetadataStore, self.metadata), loop)

    async def ask(
        self, node_id: NodeId, request: WriteTxnMarkersRequest, version: int, response_type: object, timeout_ms: float
    ) -> WriteTxnMarkersResponse:
        del version, response_type
        self.requests.append(request)
        (marker,) = request.markers
        names = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        self.asked.append((node_id, {cast(TopicPartition, name) for name in names}))
        if self.failures.get(node_id):
            failure = self.failures[node_id].pop(0)
            if failure is not None:
                raise failure
            await until(asyncio.get_running_loop().time() + timeout_ms / 1000)
            raise PeerTimeout("no answer in time")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self._answer(node_id, topic.name, index)
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
            ]
        )

    def _answer(self, node_id: int, topic: str, index: int) -> ErrorCode:
        name = TopicPartition(TopicName(topic), PartitionIndex(index))
        answers = self.answers.get((node_id, name), [ErrorCode.NONE])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def send(self) -> None:
        await self.sender.send(MARKERS, LeaderEpoch(9))


def run(leaders: dict[TopicPartition, int | None], scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scenario(Cluster(leaders))

    with World(1) as world:
        world.run(whole())


def test_each_leader_is_asked_once_for_all_that_it_leads() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.send()

        assert cluster.asked == [(1, {P0, P2}), (2, {P1})]
        (marker,) = cluster.requests[0].markers
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 4, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (9, 2)

    run({P0: 1, P1: 2, P2: 1}, scenario)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_was_not_written_is_sent_again_and_nothing_else(error: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.answers[1, P0] = [error, error, ErrorCode.NONE]

        await cluster.send()

        assert cluster.asked == [(1, {P0, P1, P2}), (1, {P0}), (1, {P0})]

    run({P0: 1, P1: 1, P2: 1}, scenario)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_partition_that_has_a_newer_marker_needs_this_one_no_more(error: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.answers[1, P0] = [error]

        await cluster.send()

        assert len(cluster.asked) == 1

    run({P0: 1, P1: 1, P2: 1}, scenario)


@pytest.mark.parametrize("failure", [PeerUnreachable("gone"), PeerTimeout("no answer"), None])
def test_a_node_that_does_not_answer_is_asked_again(failure: Exception | None) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.failures[2] = [failure, failure]

        await cluster.send()

        assert [node for node, _ in cluster.asked] == [1, 2, 2, 2]

    run({P0: 1, P1: 2, P2: 1}, scenario)


def test_only_so_many_requests_are_under_way_to_one_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.failures[1] = [None] * 1_000
        sending = [asyncio.ensure_future(cluster.send()) for _ in range(300)]
        await until(asyncio.get_running_loop().time() + 1)

        assert len(cluster.asked) == 100
        for task in sending:
            task.cancel()

    run({P0: 1, P1: 1, P2: 1}, scenario)


def test_a_new_leader_is_asked_at_once_while_the_old_one_hangs() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.failures[1] = [None]
        loop = asyncio.get_running_loop()
        started = loop.time()
        for delay_s, partition in ((0.1, P0), (0.2, P1), (0.3, P2)):
            loop.call_later(delay_s, cluster.metadata.move, partition, 2)

        await cluster.send()

        assert cluster.asked[0] == (1, {P0, P1, P2})
        assert {partition for node, partitions in cluster.asked if node == 2 for partition in partitions} == {
            P0,
            P1,
            P2,
        }
        assert loop.time() - started < 1

    run({P0: 1, P1: 1, P2: 1}, scenario)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    async def scenario(cluster: Cluster) -> None:
        asyncio.get_running_loop().call_later(5, cluster.metadata.move, P1, 3)

        await cluster.send()

        assert cluster.asked == [(1, {P0, P2}), (3, {P1})]

    run({P0: 1, P1: None, P2: 1}, scenario)


def test_a_partition_whose_topic_was_deleted_needs_no_marker() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.answers[1, P2] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        asyncio.get_running_loop().call_later(5, cluster.metadata.leaders.pop, P2)

        await cluster.send()

        assert cluster.asked[0] == (1, {P0, P2})  # The other was gone before.

    run({P0: 1, P2: 1}, scenario)
