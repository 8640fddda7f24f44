"""The shell around the machine of transactions, on a whole node: its APIs, loading, the disk, and power cuts."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.transactions.coordinator import MarkerSender
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, TransactionalId
from quorate.kernel.topic_names import TRANSACTION_STATE
from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from quorate.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

ID = "payments"
TOPIC = "orders"
SEEDS = range(100 if os.environ.get("QUORATE_HEAVY") else 6)
Producer = tuple[int, int]


class World:
    """A disk and the nodes that come to life on it, one after the other."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.clock = SimulatedClock()

    async def start_node(self) -> SimulatedNode:
        node = SimulatedNode(self.disk, self.clock, self.random)
        await node.start()
        return node

    async def first_node(self) -> SimulatedNode:
        """A node with a topic and a coordinator."""
        node = await self.start_node()
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        found = await node.call(FindCoordinatorRequest(key=ID, key_type=1), 3, FindCoordinatorResponse)
        assert (found.error_code, found.node_id) == (ErrorCode.NONE, 7)
        await run_all_work(node)
        return node


async def run_all_work(node: SimulatedNode) -> None:
    await settle()
    while node.has_work:
        await node.run_some_work()


def run(script: Callable[[World], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    asyncio.run(script(World(seed)))


async def init(node: SimulatedNode, version: int = 5, **fields: Any) -> InitProducerIdResponse:
    defaults: dict[str, Any] = {"transactional_id": ID, "transaction_timeout_ms": 60_000}
    request = InitProducerIdRequest(**(defaults | fields))
    return await node.call(request, version, InitProducerIdResponse)


async def new_producer(node: SimulatedNode) -> Producer:
    response = await init(node)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


def add_request(producer: Producer, *partitions: int, topic: str = TOPIC) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
    )


async def add(node: SimulatedNode, producer: Producer, *partitions: int, version: int = 3) -> list[int]:
    response = await node.call(add_request(producer, *partitions), version, AddPartitionsToTxnResponse)
    (topic,) = response.results_by_topic_v3_and_below
    return [result.partition_error_code for result in topic.results_by_partition]


def end_request(producer: Producer, *, commits: bool) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=commits)


async def end(node: SimulatedNode, producer: Producer, *, commits: bool, version: int = 5) -> EndTxnResponse:
    return await node.call(end_request(producer, commits=commits), version, EndTxnResponse)


async def described(node: SimulatedNode) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    (state,) = (await node.call(request, 0, DescribeTransactionsResponse)).transaction_states
    return state


def test_a_transaction_from_its_beginning_to_its_end() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        assert (await described(node)).transaction_state == "Empty"
        assert await add(node, producer, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
        state = await described(node)
        assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert [(topic.topic, tuple(topic.partitions)) for topic in state.topics] == [(TOPIC, (0, 1))]

        response = await end(node, producer, commits=True)

        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer[0], 1)
        await run_all_work(node)
        state = await described(node)
        assert (state.transaction_state, state.producer_epoch, list(state.topics)) == ("CompleteCommit", 1, [])

    run(script)


def test_nothing_is_answered_before_the_disk_has_it() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        await add(node, producer, 0)
        waiting = node.send(end_request(producer, commits=True), 5)
        await settle()
        assert not waiting.done()
        assert (await described(node)).transaction_state == "Ongoing"
        await run_all_work(node)
        assert waiting.done()

    run(script)


def test_an_end_that_the_disk_refuses_is_not_acknowledged() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        await add(node, producer, 0)
        world.disk.syncs_fail = True
        assert (await end(node, producer, commits=True)).error_code == ErrorCode.NOT_COORDINATOR

    run(script)


def test_a_coordinator_that_loads_asks_for_patience() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        await new_producer(node)
        await node.stop()
        node = await world.start_node()
        waiting = node.send(DescribeTransactionsRequest(transactional_ids=[ID]), 0)
        await settle()
        response = node.decode(waiting.result(), DescribeTransactionsResponse, 0)
        assert response.transaction_states[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await run_all_work(node)
        assert (await described(node)).transaction_state == "Empty"

    run(script)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_survives_power_cuts_and_comes_to_its_end(seed: int) -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        for _ in range(4):
            producer = await new_producer(node)
            assert await add(node, producer, *world.random.choice([[0], [1], [0, 1]])) != []
            commits = world.random.random() < 0.5
            waiting = node.send(end_request(producer, commits=commits), 5)
            await settle()
            for _ in range(world.random.randrange(12)):
                await node.run_some_work()
            was_acknowledged = waiting.done()
            waiting.cancel()
            world.disk.crash()
            node = await world.start_node()
            await run_all_work(node)
            state = (await described(node)).transaction_state
            ended = "CompleteCommit" if commits else "CompleteAbort"
            assert state == ended or (state == "Ongoing" and not was_acknowledged)
            if state == "Ongoing":
                assert (await end(node, producer, commits=commits)).error_code == ErrorCode.NONE
            else:  # A client whose answer was lost asks again.
                assert (await end(node, producer, commits=commits)).producer_epoch == producer[1] + 1
            await run_all_work(node)

    run(script, seed)


def test_a_log_that_cannot_be_understood_is_not_coordinated(caplog: pytest.LogCaptureFixture) -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        await new_producer(node)
        count = len(node.node.metadata.image.topics[TRANSACTION_STATE].partitions)
        index = partition_for(TransactionalId(ID), count)
        partition = node.node.partitions.led(TRANSACTION_STATE, index)
        nonsense = build_batch([Record(Offset(0), 1_700_000_000_000, b"\x00\x00nonsense", b"")])
        partition.append(memoryview(bytearray(nonsense)), world.clock.now_ms())
        await run_all_work(node)
        await node.stop()
        node = await world.start_node()
        await run_all_work(node)
        assert (await described(node)).error_code == ErrorCode.NOT_COORDINATOR

    with caplog.at_level(logging.ERROR):
        run(script)
    assert f"coordinator failed node=7 partition={TRANSACTION_STATE}-" in caplog.text


def test_markers_that_fail_in_a_way_nobody_thought_of_end_the_coordinator(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: object) -> None:
        raise RuntimeError("boom")

    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        await add(node, producer, 0)
        monkeypatch.setattr(MarkerSender, "send", fail)
        assert (await end(node, producer, commits=True)).error_code == ErrorCode.NONE
        await run_all_work(node)
        assert (await described(node)).error_code == ErrorCode.NOT_COORDINATOR

    with caplog.at_level(logging.ERROR):
        run(script)
    assert f"coordinator failed node=7 partition={TRANSACTION_STATE}-" in caplog.text
    assert "error=RuntimeError('boom')" in caplog.text


def test_a_fenced_producer_is_told_in_the_words_of_its_version() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        zombie = await new_producer(node)
        await new_producer(node)
        fenced, old = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
        expected = {"producer_id": zombie[0], "producer_epoch": zombie[1]}
        assert (await init(node, 5, **expected)).error_code == fenced
        assert (await init(node, 3, **expected)).error_code == old
        assert await add(node, zombie, 0, version=2) == [fenced]
        assert await add(node, zombie, 0, version=1) == [old]
        assert (await end(node, zombie, commits=True, version=2)).error_code == fenced
        assert (await end(node, zombie, commits=True, version=1)).error_code == old
        offsets = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=zombie[0], producer_epoch=zombie[1], group_id="group"
        )
        assert (await node.call(offsets, 2, AddOffsetsToTxnResponse)).error_code == fenced
        assert (await node.call(offsets, 1, AddOffsetsToTxnResponse)).error_code == old

    run(script)


def test_the_offsets_of_a_group_are_added_by_its_partition() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        request = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="group"
        )
        assert (await node.call(request, 3, AddOffsetsToTxnResponse)).error_code == ErrorCode.NONE
        (topic,) = (await described(node)).topics
        assert topic.topic == "__consumer_offsets"
        assert len(topic.partitions) == 1

    run(script)


def test_partitions_are_added_together_or_not_at_all() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)
        unknown, not_tried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await add(node, producer, 0, 5) == [not_tried, unknown]
        assert (await described(node)).transaction_state == "Empty"

    run(script)


@pytest.mark.parametrize(
    ("version", "missing"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_leaders_verify_and_add_for_many_transactions_at_once(version: int, missing: ErrorCode) -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        producer = await new_producer(node)

        async def ask(*transactions: tuple[str, int, bool]) -> list[list[int]]:
            request = AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=name,
                        producer_id=producer[0],
                        producer_epoch=producer[1],
                        verify_only=verify_only,
                        topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[index])],
                    )
                    for name, index, verify_only in transactions
                ]
            )
            response = await node.call(request, version, AddPartitionsToTxnResponse)
            return [
                [result.partition_error_code for topic in found.topic_results for result in topic.results_by_partition]
                for found in response.results_by_transaction
            ]

        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await ask((ID, 0, False), ("other", 0, True)) == [[ErrorCode.NONE], [unknown]]
        assert await ask((ID, 0, True)) == [[ErrorCode.NONE]]
        assert await ask((ID, 1, True)) == [[missing]]
        assert await ask(("", 0, True)) == [[ErrorCode.INVALID_REQUEST]]

    run(script)


@pytest.mark.parametrize(
    "fields", [{"transactional_id": ""}, {"producer_id": 5}, {"producer_epoch": 5}], ids=["empty", "no epoch", "no id"]
)
def test_requests_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        assert (await init(node, **fields)).error_code == ErrorCode.INVALID_REQUEST

    run(script)


def test_listing_by_state_and_name() -> None:
    async def script(world: World) -> None:
        node = await world.first_node()
        await new_producer(node)

        async def listed(**fields: Any) -> tuple[int, list[str], list[str]]:
            response = await node.call(ListTransactionsRequest(**fields), 2, ListTransactionsResponse)
            names = [state.transactional_id for state in response.transaction_states]
            return response.error_code, names, list(response.unknown_state_filters)

        assert await listed() == (0, [ID], [])
        assert await listed(state_filters=["Ongoing"]) == (0, [], [])
        assert await listed(state_filters=["Empty", "Odd"]) == (0, [ID], ["Odd"])
        assert await listed(state_filters=["Odd"]) == (0, [], ["Odd"])
        assert await listed(transactional_id_pattern="pay.*") == (0, [ID], [])
        assert await listed(transactional_id_pattern="pay") == (0, [], [])
        assert await listed(transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])

    run(script)


def test_an_id_is_unknown_where_nobody_has_asked_for_a_coordinator() -> None:
    async def script(world: World) -> None:
        node = await world.start_node()
        assert (await init(node)).error_code == ErrorCode.NOT_COORDINATOR
        assert TRANSACTION_STATE not in node.node.metadata.image.topics

    run(script)
