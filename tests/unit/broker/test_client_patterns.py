"""Patterns that clients send are matched by workers, however many names there are; the loop only waits for them."""

import asyncio

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.simulation.simulated_node import SimulatedNode, settle
from tests.unit.coordination.groups.test_coordinator import GROUP, World, run_all_work

# Takes an engine that backtracks longer than anybody waits.
EVIL_ID = "a" * 40 + "!"


def joining(pattern: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )


async def with_transactional_id(node: SimulatedNode, transactional_id: str) -> None:
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    await node.call(find, 4, FindCoordinatorResponse)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    await node.call(request, 4, InitProducerIdResponse)


def test_list_transactions_with_nested_repetition_is_answered() -> None:
    async def main() -> None:
        node = await World().start_node()
        await with_transactional_id(node, EVIL_ID)
        for pattern, found in (("(a+)+", []), ("(a+)+!", [EVIL_ID])):
            request = ListTransactionsRequest(transactional_id_pattern=pattern, duration_filter=-1)
            answer = await node.call(request, 2, ListTransactionsResponse)
            assert [each.transactional_id for each in answer.transaction_states] == found
        refused = await node.call(ListTransactionsRequest(transactional_id_pattern="("), 2, ListTransactionsResponse)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    asyncio.run(main())


def test_transactional_ids_are_matched_by_a_worker() -> None:
    async def main() -> None:
        node = await World().start_node()
        await with_transactional_id(node, "payments")
        await run_all_work(node)
        reply = node.send(ListTransactionsRequest(transactional_id_pattern="p.*", duration_filter=-1), 2)
        await settle()
        assert not reply.done()
        assert len(node.executor.queue) == 1

        answer = node.decode(await node.finish(reply), ListTransactionsResponse, 2)

        assert [each.transactional_id for each in answer.transaction_states] == ["payments"]

    asyncio.run(main())


def test_topics_of_a_heartbeat_with_a_pattern_are_matched_by_a_worker() -> None:
    async def main() -> None:
        node = await World().first_node()
        await run_all_work(node)
        reply = node.send(joining("to.*"), 1)
        await settle()
        assert not reply.done()
        assert len(node.executor.queue) == 1

        answer = node.decode(await node.finish(reply), ConsumerGroupHeartbeatResponse, 1)

        assert answer.error_code == ErrorCode.NONE
        assert answer.assignment is not None
        assert len(answer.assignment.topic_partitions) == 1

    asyncio.run(main())


def test_a_heartbeat_with_a_huge_pattern_is_refused() -> None:
    async def main() -> None:
        node = await World().first_node()
        answer = await node.call(joining("((.?){1000}){9}x"), 1, ConsumerGroupHeartbeatResponse)

        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert "SubscribedTopicRegex" in str(answer.error_message)

    asyncio.run(main())
