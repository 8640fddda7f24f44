"""A leader that is cut off from the cluster, not from its clients, tells them nothing that its successor knows better.

It leads a partition, the offsets of groups or the state of transactions; a client goes on with the successor, and then
comes back to the one that does not know of it. Asked of memory alone, each of them would lie.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from quorate.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from quorate.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.protocol.schema import Request, Response
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.simulation.replication.clients import RETRIED, TOPIC, Client
from tests.simulation.replication.cluster import ClusterShape, ReplicatedCluster
from tests.simulation.replication.history import History
from tests.simulation.world.world import World

R = TypeVar("R", bound=Response)

_TOPIC = TopicName(TOPIC)
_SHAPE = ClusterShape(configs={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1})
_ID = "payments"
_PASSING = RETRIED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Stage:
    """Three nodes and a client, which asks whichever of them it likes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = ReplicatedCluster(world, _SHAPE)
        self._client = Client(self.cluster, History(), "client")

    async def open(self) -> None:
        await self.cluster.start()
        await self.cluster.client_host.run(self._client.create_topic(partition_count=1))
        await self.leader_of(_TOPIC)

    async def ask(self, node_id: NodeId, request: Request, version: int, kind: type[R]) -> R:
        return await self.cluster.client_host.run(self._client.call(node_id, request, version, kind))

    async def leader_of(self, topic: TopicName) -> NodeId:
        await self.world.until(lambda: self._leader(topic) is not None)
        leader = self._leader(topic)
        assert leader is not None
        return leader

    def _leader(self, topic: TopicName) -> NodeId | None:
        partition = self.cluster.newest_image().partition(topic, PartitionIndex(0))
        return partition.leader if partition is not None and partition.has_leader else None

    async def cut_off(self, node_id: NodeId, topic: TopicName, *, leads_quorum: bool) -> NodeId:
        """Have the node lead the quorum or not, and cut it off from the others; returns who leads the topic then."""
        others = [other for other in self.cluster.node_ids if other != node_id]
        wanted = node_id if leads_quorum else others[0]
        await self.world.until(lambda: self.cluster.quorum_leader() is not None)
        leader = self.cluster.quorum_leader()
        assert leader is not None
        if (leader == node_id) is not leads_quorum:
            driver = self.cluster.nodes[leader].quorum.driver
            await self.cluster.hosts[leader].run(driver.hand_over(wanted))
            await self.world.until(lambda: self.cluster.quorum_leader() == wanted)
        for other in others:
            self.world.network.block(f"n{node_id}", f"n{other}")
            self.world.network.block(f"n{other}", f"n{node_id}")
        await self.world.until(lambda: self._leader(topic) not in (None, node_id))
        return await self.leader_of(topic)


async def sequence(stage: Stage, *, leads_quorum: bool) -> object:
    """An idempotent producer goes on from what the successor has."""
    first = await stage.leader_of(_TOPIC)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    producer_id = (await stage.ask(first, request, 4, InitProducerIdResponse)).producer_id
    assert await _produce(stage, first, producer_id, 0) is ErrorCode.NONE
    second = await stage.cut_off(first, _TOPIC, leads_quorum=leads_quorum)
    await _until_done(stage, lambda: _produce(stage, second, producer_id, 1))
    return await _produce(stage, first, producer_id, 2)


async def _produce(stage: Stage, node_id: NodeId, producer_id: int, sequence: int) -> ErrorCode:
    batch = build_batch(
        [Record(Offset(0), 1_700_000_000_000, None, b"value")],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
    )
    data = TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = await stage.ask(node_id, ProduceRequest(acks=-1, timeout_ms=4_000, topic_data=[data]), 11, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def committed_offset(stage: Stage, *, leads_quorum: bool) -> object:
    """A group commits with the successor."""
    first = await _coordinator(stage, key_type=0, topic=CONSUMER_OFFSETS)
    await _until_done(stage, lambda: _commit(stage, first, 1))
    assert await _fetch(stage, first) == 1
    second = await stage.cut_off(first, CONSUMER_OFFSETS, leads_quorum=leads_quorum)
    await _until_done(stage, lambda: _commit(stage, second, 2))
    assert await _fetch(stage, second) == 2
    return await _fetch(stage, first)


async def _commit(stage: Stage, node_id: NodeId, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=_ID, topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=[partition])])
    answer = await stage.ask(node_id, request, 8, OffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def _fetch(stage: Stage, node_id: NodeId) -> object:
    request = OffsetFetchRequest(group_id=_ID, topics=[OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0])])
    answer = await stage.ask(node_id, request, 7, OffsetFetchResponse)
    if answer.error_code != ErrorCode.NONE:
        return ErrorCode(answer.error_code)
    return answer.topics[0].partitions[0].committed_offset


async def transaction(stage: Stage, *, leads_quorum: bool) -> object:
    """A producer begins its next transaction with the successor, and would hear that it is committed already."""
    first = await _coordinator(stage, key_type=1, topic=TRANSACTION_STATE)
    init = InitProducerIdRequest(transactional_id=_ID, transaction_timeout_ms=60_000)
    producer_ids: list[int] = []

    async def begin() -> ErrorCode:
        answer = await stage.ask(first, init, 4, InitProducerIdResponse)
        producer_ids.append(answer.producer_id)
        return ErrorCode(answer.error_code)

    await _until_done(stage, begin)
    producer_id = producer_ids[-1]
    await _until_done(stage, lambda: _add_partition(stage, first, producer_id))
    await _until_done(stage, lambda: _end(stage, first, producer_id))
    # Only when all markers are written is the transaction ended, and the next one may begin.
    await _until_done(stage, lambda: _end(stage, first, producer_id))
    second = await stage.cut_off(first, TRANSACTION_STATE, leads_quorum=leads_quorum)
    await _until_done(stage, lambda: _add_partition(stage, second, producer_id))
    return await _end(stage, first, producer_id)


async def _add_partition(stage: Stage, node_id: NodeId, producer_id: int) -> ErrorCode:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=_ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])],
    )
    answer = await stage.ask(node_id, request, 3, AddPartitionsToTxnResponse)
    return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


async def _end(stage: Stage, node_id: NodeId, producer_id: int) -> ErrorCode:
    request = EndTxnRequest(transactional_id=_ID, producer_id=producer_id, producer_epoch=0, committed=True)
    return ErrorCode((await stage.ask(node_id, request, 3, EndTxnResponse)).error_code)


async def _coordinator(stage: Stage, *, key_type: int, topic: TopicName) -> NodeId:
    request = FindCoordinatorRequest(key=_ID, key_type=key_type)

    async def find() -> ErrorCode:
        return ErrorCode((await stage.ask(NodeId(1), request, 2, FindCoordinatorResponse)).error_code)

    await _until_done(stage, find)
    return await stage.leader_of(topic)


async def _until_done(stage: Stage, attempt: Callable[[], Awaitable[ErrorCode]]) -> None:
    while (error := await attempt()) in _PASSING:
        await stage.world.sleep(0.05)
    assert error is ErrorCode.NONE


@contextmanager
def sure_of_itself() -> Iterator[None]:
    """The fault put back: what a node has heard last is what holds."""

    async def is_current(self: QuorumMetadataStore) -> bool:
        return True

    with patch.object(QuorumMetadataStore, "is_current", is_current):
        yield


def told(story: Callable[..., Awaitable[object]], *, leads_quorum: bool) -> object:
    async def play() -> object:
        await stage.open()
        return await story(stage, leads_quorum=leads_quorum)

    with World(1) as world:
        stage = Stage(world)
        return world.run(play())


leads_quorum_or_not = pytest.mark.parametrize("leads_quorum", [False, True], ids=["follows", "leads-quorum"])


@leads_quorum_or_not
@pytest.mark.parametrize(
    ("story", "answer"),
    [
        (sequence, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (committed_offset, ErrorCode.NOT_COORDINATOR),
        (transaction, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_cut_off_leader_says_that_it_does_not_lead(
    story: Callable[..., Awaitable[object]], answer: ErrorCode, leads_quorum: bool
) -> None:
    assert told(story, leads_quorum=leads_quorum) is answer


@leads_quorum_or_not
@pytest.mark.parametrize(
    ("story", "lie"),
    [(sequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (committed_offset, 1), (transaction, ErrorCode.NONE)],
)
def test_one_that_is_sure_of_itself_would_lie(
    story: Callable[..., Awaitable[object]], lie: object, leads_quorum: bool
) -> None:
    with sure_of_itself():
        assert told(story, leads_quorum=leads_quorum) == lie
