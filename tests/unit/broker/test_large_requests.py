"""Requests and answers of many elements: turns on the loop, workers for the codecs, bounds before anything is made."""

import asyncio

import msgspec
import pytest

from quorate.broker.handlers import APIS
from quorate.broker.large_requests import LARGE_ANSWER_ELEMENTS, MAX_FRAME_BYTES, is_large
from quorate.kernel.errors import ErrorCode
from quorate.kernel.turns import SLICE_ELEMENTS, Turns
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quorate.protocol.schema import fields_of
from quorate.transport.connection import CloseConnection
from tests.simulation.simulated_node import settle
from tests.unit.coordination.groups.test_coordinator import World, run_all_work


def test_one_slice_of_all_that_wait_runs_in_each_turn_of_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns = Turns(loop)
        turn_number = 0
        slices: list[int] = []

        def count() -> None:
            nonlocal turn_number
            turn_number += 1
            loop.call_soon(count)

        async def work() -> None:
            for _ in range(5):
                await turns.next()
                slices.append(turn_number)

        loop.call_soon(count)
        await asyncio.gather(*(work() for _ in range(10)))

        assert len(slices) == 50
        assert len(set(slices)) == len(slices)

    asyncio.run(main())


def test_who_waits_and_goes_does_not_stop_the_others() -> None:
    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        waiting = [asyncio.ensure_future(turns.next()) for _ in range(5)]
        for gone in (waiting[0], waiting[3]):
            gone.cancel()

        await asyncio.gather(waiting[1], waiting[2], waiting[4])

    asyncio.run(main())


def test_a_long_loop_waits_for_its_turn_again_and_again() -> None:
    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        task = asyncio.ensure_future(other())
        elements = [element async for element in turns.sliced(range(10 * SLICE_ELEMENTS))]
        task.cancel()

        assert elements == list(range(10 * SLICE_ELEMENTS))
        assert others >= 9

    asyncio.run(main())


def test_large_answers_are_told_by_all_their_arrays() -> None:
    partitions = [MetadataResponsePartition(replica_nodes=(1, 2, 3))] * (LARGE_ANSWER_ELEMENTS // 8)

    assert not is_large(MetadataResponse(topics=[MetadataResponseTopic(partitions=partitions)]))
    assert is_large(MetadataResponse(topics=[MetadataResponseTopic(partitions=partitions)] * 3))


def test_every_array_of_a_request_in_parts_is_there() -> None:
    for api in APIS.values():
        for parts in api.parts:
            message: type = api.request
            for name in parts.of:
                (field,) = [field for field in fields_of(message) if field.name == name]
                assert field.is_array
                message = field.type if isinstance(field.type, type) else object


def test_find_coordinator_with_100_000_keys_is_decoded_and_encoded_by_workers_and_answered_in_turns() -> None:
    async def main() -> None:
        node = await World().first_node()
        await run_all_work(node)
        keys = [f"group-{number}" for number in range(100_000)]
        reply = node.send(FindCoordinatorRequest(coordinator_keys=keys), 4)
        await settle()
        assert not reply.done()
        assert len(node.executor.queue) == 1  # It is not decoded yet.

        node.executor.run(0)
        loop_turns = 0
        while not node.executor.queue:
            await asyncio.sleep(0)
            loop_turns += 1
        assert loop_turns >= len(keys) // SLICE_ELEMENTS
        assert not reply.done()  # It is not encoded yet.

        answer = node.decode(await node.finish(reply), FindCoordinatorResponse, 4)
        assert [coordinator.key for coordinator in answer.coordinators] == keys

    asyncio.run(main())


@pytest.mark.parametrize("count", [20_000, 3_000], ids=["large frames", "small frames"])
def test_of_many_wide_requests_few_are_decoded_at_a_time(count: int) -> None:
    """A frame of empty names takes a fraction of the memory of what is made of it."""

    async def main() -> None:
        node = await World().first_node()
        await run_all_work(node)
        keys = [f"g{number}" for number in range(count)]
        replies = [node.send(FindCoordinatorRequest(coordinator_keys=keys), 4) for _ in range(12)]
        most = node.node.dispatch.large_requests.to_answer
        while not all(reply.done() for reply in replies):
            await asyncio.sleep(0)
            while node.executor.queue:
                node.executor.run(0)
            most = max(most, node.node.dispatch.large_requests.to_answer)
        assert 2 <= most <= 4
        for reply in replies:
            answer = node.decode(await node.finish(reply), FindCoordinatorResponse, 4)
            assert [coordinator.key for coordinator in answer.coordinators] == keys

    asyncio.run(main())


def test_describe_groups_with_a_megabyte_of_empty_ids_is_refused_before_they_are_made() -> None:
    async def main() -> None:
        node = await World().first_node()
        reply = node.send(DescribeGroupsRequest(groups=[""] * (512 * 1024)), 0)

        with pytest.raises(CloseConnection, match=r"DescribeGroupsRequest\.groups has more elements"):
            await node.finish(reply)

    asyncio.run(main())


def test_a_group_that_is_named_many_times_is_described_once() -> None:
    async def main() -> None:
        node = await World().first_node()
        answer = await node.call(DescribeGroupsRequest(groups=["a"] * 10_000 + ["b"]), 5, DescribeGroupsResponse)

        assert [group.group_id for group in answer.groups] == ["a", "b"]

    asyncio.run(main())


def test_a_topic_that_is_named_many_times_is_described_once() -> None:
    async def main() -> None:
        node = await World().first_node()
        topics = [MetadataRequestTopic(name="topic"), MetadataRequestTopic(name="other")] * 5_000
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await node.call(request, 8, MetadataResponse)

        assert [(topic.name, topic.error_code) for topic in answer.topics] == [
            ("topic", ErrorCode.NONE),
            ("other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    asyncio.run(main())


def test_a_request_other_than_produce_is_bounded() -> None:
    async def main() -> None:
        node = await World().start_node()
        reply = node.send(DescribeGroupsRequest(groups=["x" * 30_000] * (MAX_FRAME_BYTES // 30_000)), 0)
        assert (await node.finish(reply)) is not None

        with pytest.raises(CloseConnection, match="the limit of this API"):
            node.send(DescribeGroupsRequest(groups=["x" * 30_000] * (MAX_FRAME_BYTES // 30_000 + 1)), 0)

    asyncio.run(main())


def test_large_requests_that_wait_are_bounded_together() -> None:
    async def main() -> None:
        node = await World().start_node()
        request = DescribeGroupsRequest(groups=["x" * 30_000] * 250)
        waiting = [node.send(request, 0) for _ in range(4)]

        with pytest.raises(CloseConnection, match="too many large requests"):
            node.send(request, 0)

        for reply in waiting:
            assert (await node.finish(reply)) is not None
        assert (await node.finish(node.send(request, 0))) is not None

    asyncio.run(main())


def test_create_topics_of_20_000_topics_is_a_policy_violation() -> None:
    async def main() -> None:
        node = await World().start_node()
        for topics in (
            [CreatableTopic(name=f"t-{number}", num_partitions=1, replication_factor=1) for number in range(20_000)],
            [CreatableTopic(name="t", num_partitions=10_001, replication_factor=1)],
        ):
            answer = await node.call(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7, CreateTopicsResponse)
            assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}
            assert len(answer.topics) == len(topics)

    asyncio.run(main())


def test_a_topic_of_many_partitions_is_described_in_turns() -> None:
    async def main() -> None:
        node = await World().start_node()
        topic = CreatableTopic(name="big", num_partitions=12 * SLICE_ELEMENTS, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
        turns = CountedTurns(asyncio.get_running_loop())
        msgspec.structs.force_setattr(node.node.services, "turns", turns)
        answer = await node.call(MetadataRequest(topics=None), 8, MetadataResponse)

        indexes = [partition.partition_index for partition in answer.topics[0].partitions]
        assert indexes == list(range(12 * SLICE_ELEMENTS))
        assert turns.count >= 11

    asyncio.run(main())


class CountedTurns(Turns):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.count = 0

    def next(self) -> "asyncio.Future[None]":
        self.count += 1
        return super().next()
