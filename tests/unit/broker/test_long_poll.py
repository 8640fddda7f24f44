"""A fetch that waits: woken by what it waits for, whenever that happens, and by nothing else."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from quorate.kernel.ids import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.records.record import Record
from quorate.replication.partition import Partition
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

TOPIC = "orders"


def scenario(body: Callable[[SimulatedNode], Awaitable[None]]) -> None:
    async def run() -> None:
        random = Random(1)
        node = SimulatedNode(SimulatedDisk(random), SimulatedClock(), random)
        await node.start()
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        await body(node)

    asyncio.run(run())


def fetch(
    node: SimulatedNode, *, min_bytes: int = 1, offset: int = 0, isolation_level: int = 0
) -> "asyncio.Future[Reply | None]":
    partitions = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in (0, 1)]
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )
    return node.send(request, 11)


def produce(node: SimulatedNode, value: bytes, partition: int = 0) -> None:
    batch = build_batch([Record(Offset(0), 1_700_000_000_000, None, value)])
    data = PartitionProduceData(index=partition, records=batch)
    node.send(
        ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]), 9
    )


async def run_all_work(node: SimulatedNode) -> None:
    await settle()
    while node.executor.queue:
        await node.run_some_work()


def first_partition(node: SimulatedNode) -> Partition:
    return node.node.partitions.led(TopicName(TOPIC), PartitionIndex(0))


def sizes(node: SimulatedNode, reply: "asyncio.Future[Reply | None]") -> list[int]:
    response = node.decode(reply.result(), FetchResponse, 11)
    return [len(data.records or b"") for data in response.responses[0].partitions]


def test_a_waiting_fetch_is_answered_when_the_record_is_committed_and_not_before() -> None:
    async def body(node: SimulatedNode) -> None:
        waiting = fetch(node)
        produce(node, b"x")
        await settle()
        assert not waiting.done()
        await run_all_work(node)
        assert waiting.done()
        assert sizes(node, waiting)[0] > 0

    scenario(body)


def test_a_commit_between_the_fetch_and_the_next_turn_of_the_loop_is_not_missed() -> None:
    async def body(node: SimulatedNode) -> None:
        produce(node, b"x")
        await settle()
        waiting = fetch(node)
        first_partition(node).log.sync()
        first_partition(node).synced()
        await settle()
        assert waiting.done()

    scenario(body)


def test_a_fetch_waits_for_as_many_bytes_as_it_asked_for() -> None:
    async def body(node: SimulatedNode) -> None:
        waiting = fetch(node, min_bytes=2_500)
        for number in range(2):
            produce(node, b"x" * 1_000, partition=number)
            await run_all_work(node)
            assert not waiting.done()
        produce(node, b"x" * 1_000)
        await run_all_work(node)
        assert waiting.done()
        assert sum(sizes(node, waiting)) >= 2_500

    scenario(body)


def test_a_fetch_of_committed_records_waits_for_the_end_of_the_transaction_to_be_committed() -> None:
    async def body(node: SimulatedNode) -> None:
        partition, producer_id, epoch = first_partition(node), ProducerId(7), ProducerEpoch(0)
        impatient, waiting = fetch(node), fetch(node, isolation_level=1)
        records = [Record(Offset(0), 1_700_000_000_000, None, b"x")]
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        partition.append(memoryview(bytearray(batch)), 1_700_000_000_000)
        await run_all_work(node)
        assert impatient.done()
        assert not waiting.done()

        marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
        end = TransactionEnd(producer_id=producer_id, producer_epoch=epoch, marker=marker)
        partition.append_marker(end, 1_700_000_000_000)
        await settle()
        assert not waiting.done()
        await run_all_work(node)
        assert sizes(node, waiting)[0] > len(batch)

    scenario(body)


def test_a_fetch_whose_client_is_gone_watches_nothing_any_more() -> None:
    async def body(node: SimulatedNode) -> None:
        waiting = fetch(node)
        await settle()
        partition = first_partition(node)
        assert len(partition._watchers) == 1
        waiting.cancel()
        await settle()
        assert len(partition._watchers) == 0

    scenario(body)


def test_a_node_that_stops_answers_waiting_fetches_with_what_there_is() -> None:
    async def body(node: SimulatedNode) -> None:
        waiting = fetch(node)
        await settle()
        node.node.release_waiting_requests()
        await settle()
        assert sizes(node, waiting) == [0, 0]

    scenario(body)
