"""The first records of a transaction: written when its coordinator has confirmed it, in order, and not too late."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from random import Random
from typing import Any

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import metadata
from quorate.protocol.messages import write_txn_markers as markers
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

TOPIC = "payments"
PRODUCER = ProducerId(7001)


class FakeVerifier:
    """Notes every question. It answers at once, or when the test lets it."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, int, bool]] = []  # Transactional id, number of partitions, adds.
        self.code = ErrorCode.NONE
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def verify(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        assert (producer_id, producer_epoch) == (PRODUCER, 0)
        self.questions.append((transactional_id, len(partitions), adds))
        await self.may_answer.wait()
        return dict.fromkeys(partitions, self.code)


Scenario = Callable[[SimulatedNode, FakeVerifier], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def run() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        topic = create.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        await node.call(create.CreateTopicsRequest(topics=[topic]), 7, create.CreateTopicsResponse)
        verifier = FakeVerifier()
        msgspec.structs.force_setattr(node.node.services, "transaction_verifier", verifier)
        await scenario(node, verifier)

    asyncio.run(run())


def request(*sequences: int, transactional_id: str | None = "id", topic_id: Any = None) -> ProduceRequest:
    """One batch for each of the first partitions."""
    data = [
        PartitionProduceData(
            index=index,
            records=build_batch(
                [Record(Offset(0), 1_700_000_000_000, b"key", b"value %d" % sequence)],
                producer_id=PRODUCER,
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
                is_transactional=True,
            ),
        )
        for index, sequence in enumerate(sequences)
    ]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    if topic_id is not None:
        topic = TopicProduceData(topic_id=topic_id, partition_data=data)
    return ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[topic])


async def produce(node: SimulatedNode, *sequences: int, version: int = 11) -> list[int]:
    answer = await node.call(request(*sequences), version, ProduceResponse)
    return [each.error_code for each in answer.responses[0].partition_responses]


def codes(node: SimulatedNode, reply: Reply | None, version: int = 11) -> list[int]:
    answer = node.decode(reply, ProduceResponse, version)
    return [each.error_code for each in answer.responses[0].partition_responses]


def partition(node: SimulatedNode) -> Partition:
    return node.node.partitions.led(TopicName(TOPIC), PartitionIndex(0))


async def abort(node: SimulatedNode) -> None:
    marker = markers.WritableTxnMarker(
        producer_id=PRODUCER, topics=[markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])]
    )
    await node.call(markers.WriteTxnMarkersRequest(markers=[marker]), 1, markers.WriteTxnMarkersResponse)


@pytest.mark.parametrize(("version", "adds"), [(9, False), (11, False), (12, True)])
def test_the_coordinator_is_asked_once_for_each_partition(version: int, adds: bool) -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        assert await produce(node, 0, version=version) == [0]
        assert await produce(node, 1, 0, version=version) == [0, 0]
        assert await produce(node, 2, 1, version=version) == [0, 0]

        assert verifier.questions == [("id", 1, adds), ("id", 1, adds)]

    play(scenario)


def test_the_coordinator_is_asked_again_for_the_next_transaction() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        await produce(node, 0)
        await abort(node)
        await produce(node, 1)

        assert len(verifier.questions) == 2

    play(scenario)


@pytest.mark.parametrize(
    ("answer", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_a_refusal_is_told_in_an_error_that_the_producer_understands(
    answer: ErrorCode, version: int, told: ErrorCode
) -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        verifier.code = answer

        assert await produce(node, 0, version=version) == [told]
        assert partition(node).log.log_end_offset == 0

    play(scenario)


def test_a_later_request_does_not_overtake_one_that_waits_for_the_coordinator() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        verifier.may_answer.clear()
        replies = [node.send(request(sequence), 11) for sequence in range(3)]
        await settle()
        assert not any(reply.done() for reply in replies)
        verifier.may_answer.set()

        assert [codes(node, await node.finish(reply)) for reply in replies] == [[0], [0], [0]]
        assert len(verifier.questions) == 1
        assert partition(node).log.log_end_offset == 3

    play(scenario)


def test_a_later_batch_is_not_written_when_the_first_was_refused() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        verifier.code = ErrorCode.NETWORK_EXCEPTION
        assert await produce(node, 0) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        verifier.code = ErrorCode.NONE

        assert await produce(node, 1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert await produce(node, 0) == [0]
        assert await produce(node, 1) == [0]

    play(scenario)


def test_a_record_whose_transaction_ends_while_it_is_verified_is_refused() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        verifier.may_answer.clear()
        reply = node.send(request(0), 11)
        await settle()
        await abort(node)
        verifier.may_answer.set()

        assert codes(node, await node.finish(reply)) == [ErrorCode.INVALID_TXN_STATE]
        assert partition(node).last_stable_offset == partition(node).log.log_end_offset == 1

    play(scenario)


def test_a_request_goes_on_when_the_one_before_it_lost_its_client() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        verifier.may_answer.clear()
        lost = node.send(request(0), 11)
        waiting = node.send(request(1), 11)
        await settle()
        lost.cancel()
        await settle()
        verifier.may_answer.set()

        assert codes(node, await node.finish(waiting)) == [0]
        assert partition(node).log.log_end_offset == 2

    play(scenario)


def test_with_epoch_bumps_a_producer_that_is_not_known_starts_at_sequence_zero() -> None:
    async def scenario(node: SimulatedNode, _: FakeVerifier) -> None:
        assert await produce(node, 5, version=12) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        require_leading(partition(node)).early_until_ms = None  # It has led for long.
        assert await produce(node, 5, version=12) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert await produce(node, 5, version=11) == [ErrorCode.NONE]

    play(scenario)


def test_a_transactional_record_without_a_transactional_id_is_refused() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        answer = await node.call(request(0, transactional_id=None), 11, ProduceResponse)

        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert verifier.questions == []

    play(scenario)


def test_topics_are_found_by_their_ids() -> None:
    async def scenario(node: SimulatedNode, verifier: FakeVerifier) -> None:
        wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
        topic_id = (await node.call(wanted, 12, metadata.MetadataResponse)).topics[0].topic_id

        answer = await node.call(request(0, topic_id=topic_id), 13, ProduceResponse)

        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert verifier.questions == [("id", 1, True)]

    play(scenario)
