"""Asking a transaction's coordinator before its first records are written to a partition (KIP-890).

Without it a batch that arrives late, after its transaction has ended, would open one that nobody ever ends. With
transaction version 2 the same question adds the partition to the transaction, so that clients need not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeVar

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId, TopicPartition, TransactionalId

_ABORTABLE_FROM_PRODUCE = 11
_ADDS_FROM_PRODUCE = 12
_ABORTABLE_FROM_OFFSET_COMMIT = 4
_ADDS_FROM_OFFSET_COMMIT = 5

ResultType = TypeVar("ResultType")

#: Errors of a coordinator that pass. Old producers do not expect them in the answer to Produce.
_PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionVerifier(Protocol):
    """The way to the coordinators of transactions."""

    async def verify(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is part of the producer's ongoing transaction; with ``adds`` it is made one."""
        ...


class ProducerTurns:
    """Lets the requests of one producer pass one after the other, in the order they came.

    A client has several on their way. While the first waits for the coordinator the next must not overtake it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: dict[ProducerId, asyncio.Future[None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def is_free(self, producer_id: ProducerId) -> bool:
        return producer_id not in self._last

    def run(self, producer_id: ProducerId, work: Callable[[], Awaitable[ResultType]]) -> "asyncio.Future[ResultType]":
        """Do the work when everything that was lined up before is done, even if nobody wants the result any more.

        A turn that ended with its client's connection could leave those behind it waiting, or let them overtake.
        """
        before = self._last.get(producer_id)
        done = self._last[producer_id] = self._loop.create_future()
        result: asyncio.Future[ResultType] = self._loop.create_future()
        task = self._loop.create_task(self._take_turn(producer_id, before, done, work, result))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return result

    async def _take_turn(
        self,
        producer_id: ProducerId,
        before: "asyncio.Future[None] | None",
        done: "asyncio.Future[None]",
        work: Callable[[], Awaitable[ResultType]],
        result: "asyncio.Future[ResultType]",
    ) -> None:
        try:
            if before is not None:
                await before
            outcome = await work()
            if not result.done():
                result.set_result(outcome)
        except Exception as error:
            if not result.done():
                result.set_exception(error)
        finally:
            if self._last[producer_id] is done:
                del self._last[producer_id]
            done.set_result(None)


def adds_for_produce(api_version: int) -> bool:
    return api_version >= _ADDS_FROM_PRODUCE


def adds_for_offset_commit(api_version: int) -> bool:
    return api_version >= _ADDS_FROM_OFFSET_COMMIT


def refusal_of_produce(code: ErrorCode, api_version: int) -> KafkaError | None:
    """What a coordinator's answer means to a producer, in an error that its version understands."""
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_FROM_PRODUCE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "The partition was not added to the transaction.")
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and adds_for_produce(api_version):
        return KafkaError(code)
    if code in _PASSING:
        # Of the errors after which every producer tries again, this one does not make it ask for metadata first.
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"The transaction of the partition could not be verified: {code.name}."
        )
    return KafkaError(code)


def refusal_of_offset_commit(code: ErrorCode, api_version: int) -> ErrorCode:
    """The same for TxnOffsetCommit, whose senders know the errors of coordinators, but not of lost connections."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_FROM_OFFSET_COMMIT:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code
