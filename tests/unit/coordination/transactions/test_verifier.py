"""Partitions are verified at the coordinator, many in one request, and every question gets an answer."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest

from quorate.coordination.transactions.verification import ProducerTurns, TransactionVerifier
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    NodeId,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.metadata.core.image import Broker
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from quorate.transport.peers.errors import PeerTimeout, PeerUnreachable
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import until

Errors = dict[TopicPartition, ErrorCode]
P0, P1 = (TopicPartition(TopicName("orders"), PartitionIndex(index)) for index in range(2))


class Coordinators:
    """Ids that begin with a digit are coordinated by that node; each request is answered after a moment."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, tuple[AddPartitionsToTxnTransaction, ...]]] = []
        self.errors: list[ErrorCode] = [ErrorCode.NONE]
        self.failure: Exception | None = None
        self.verifier = TransactionVerifier(cast(Any, self), self._coordinator, asyncio.get_running_loop())

    def _coordinator(self, transactional_id: TransactionalId) -> Broker | None:
        if not transactional_id[0].isdigit():
            return None
        return cast(Broker, type("Stub", (), {"node_id": NodeId(int(transactional_id[0]))}))

    async def ask(
        self,
        node_id: NodeId,
        request: AddPartitionsToTxnRequest,
        version: int,
        response_type: object,
        timeout_ms: float,
    ) -> AddPartitionsToTxnResponse:
        del response_type, timeout_ms
        assert version == 5
        self.requests.append((node_id, tuple(request.transactions)))
        await until(asyncio.get_running_loop().time() + 0.001)
        if self.failure is not None:
            raise self.failure
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        return AddPartitionsToTxnResponse(
            results_by_transaction=[_result(transaction, error) for transaction in request.transactions]
        )

    async def verify(
        self, name: str, *partitions: TopicPartition, adds: bool = True
    ) -> dict[TopicPartition, ErrorCode]:
        return await self.verifier.verify(TransactionalId(name), ProducerId(7), ProducerEpoch(3), partitions, adds=adds)


def _result(transaction: AddPartitionsToTxnTransaction, error: ErrorCode) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def run(scenario: Callable[[Coordinators], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scenario(Coordinators())

    with World(1) as world:
        world.run(whole())


@pytest.mark.parametrize("adds", [True, False])
def test_the_coordinator_is_asked_and_its_answer_given(adds: bool) -> None:
    async def scenario(coordinators: Coordinators) -> None:
        assert await coordinators.verify("1-a", P0, P1, adds=adds) == {P0: ErrorCode.NONE, P1: ErrorCode.NONE}

        ((node_id, (transaction,)),) = coordinators.requests
        assert node_id == 1
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("1-a", 7, 3)
        assert transaction.verify_only is not adds

    run(scenario)


def test_what_comes_up_while_a_node_is_asked_goes_with_the_next_request() -> None:
    async def scenario(coordinators: Coordinators) -> None:
        first = asyncio.ensure_future(coordinators.verify("1-a", P0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        names = ["1-b", "1-c", "2-d", "1-b"]
        rest = await asyncio.gather(*(coordinators.verify(name, P1) for name in names), first)

        assert all(errors and set(errors.values()) == {ErrorCode.NONE} for errors in rest)
        asked = [(node, [transaction.transactional_id for transaction in sent]) for node, sent in coordinators.requests]
        # One question about an id in each request: the answer names nothing but the id.
        assert asked == [(1, ["1-a"]), (2, ["2-d"]), (1, ["1-b", "1-c"]), (1, ["1-b"])]

    run(scenario)


def test_without_a_known_coordinator_the_producer_has_to_try_again() -> None:
    async def scenario(coordinators: Coordinators) -> None:
        assert await coordinators.verify("nobody", P0) == {P0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert coordinators.requests == []

    run(scenario)


@pytest.mark.parametrize("failure", [PeerUnreachable("gone"), PeerTimeout("no answer")])
def test_a_coordinator_that_does_not_answer_is_a_broken_connection_to_the_producer(failure: Exception) -> None:
    async def scenario(coordinators: Coordinators) -> None:
        coordinators.failure = failure
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.NETWORK_EXCEPTION}
        coordinators.failure = None
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.NONE}

    run(scenario)


def test_asking_that_fails_in_a_way_nobody_thought_of_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(coordinators: Coordinators) -> None:
        coordinators.failure = RuntimeError("boom")
        asked = asyncio.ensure_future(coordinators.verify("1-a", P0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # The second question of an id waits for the next request, which the failure keeps from being sent.
        later = [asyncio.ensure_future(coordinators.verify("1-b", P0)) for _ in range(2)]
        for answers in (asked, *later):
            assert await answers == {P0: ErrorCode.NETWORK_EXCEPTION}
        coordinators.failure = None
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.NONE}

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert "verification of transactions failed error=boom" in caplog.text


def test_a_turn_that_fails_when_its_client_has_gone_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        turns = ProducerTurns(asyncio.get_running_loop())

        async def fail(error: Exception) -> None:
            raise error

        heard = turns.run(ProducerId(7), lambda: fail(RuntimeError("heard")))
        for error in (RuntimeError("boom"), KafkaError(ErrorCode.NOT_COORDINATOR)):
            turns.run(ProducerId(7), partial(fail, error)).cancel()
        with pytest.raises(RuntimeError, match="heard"):
            await heard
        while not turns.is_free(ProducerId(7)):
            await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "turn of a producer whose client has gone failed error=boom"
    ]


def test_a_fenced_producer_is_told_in_the_words_of_a_leader() -> None:
    async def scenario(coordinators: Coordinators) -> None:
        coordinators.errors = [ErrorCode.PRODUCER_FENCED]
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}

    run(scenario)


def test_a_transaction_that_is_just_ending_is_waited_for_a_moment() -> None:
    async def scenario(coordinators: Coordinators) -> None:
        coordinators.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3 + [ErrorCode.NONE]
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.NONE}
        assert len(coordinators.requests) == 4

        coordinators.errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
        started = asyncio.get_running_loop().time()
        assert await coordinators.verify("1-a", P0) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert asyncio.get_running_loop().time() - started < 1

    run(scenario)


def test_those_who_only_verify_are_not_kept_waiting() -> None:
    async def scenario(coordinators: Coordinators) -> None:
        coordinators.errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await coordinators.verify("1-a", P0, adds=False) == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
        assert len(coordinators.requests) == 1

    run(scenario)
