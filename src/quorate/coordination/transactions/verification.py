"""Asking a transaction's coordinator before its first records are written to a partition (KIP-890).

Without it a batch that arrives late, after its transaction has ended, would open one that nobody ever ends. With
transaction version 2 the same question adds the partition to the transaction, so that clients need not. What comes up
while a coordinator is being asked goes to it with the next request, all at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import msgspec

from quorate.coordination.coordinator import AskNode
from quorate.coordination.core.errors import RETRIABLE_FROM_COORDINATORS
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
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.image import Broker
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from quorate.transport.peers.errors import PeerError

logger = logging.getLogger(__name__)

_ABORTABLE_FROM_PRODUCE = 11
_ADDS_FROM_PRODUCE = 12
_ABORTABLE_FROM_OFFSET_COMMIT = 4
_ADDS_FROM_OFFSET_COMMIT = 5

_VERSION = 5
_TIMEOUT_MS = 5_000
#: A producer may be faster with its next transaction than the markers of its last: give them this long, as Kafka does.
_CONCURRENT_RETRY_MS = 10
_CONCURRENT_LIMIT_MS = 100

Errors = dict[TopicPartition, ErrorCode]

ResultType = TypeVar("ResultType")

#: Old producers do not expect these in the answer to Produce.
_RETRIABLE = RETRIABLE_FROM_COORDINATORS | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION}


class ProducerTurns:
    """Lets the requests of one producer pass one after the other, in the order they came.

    A client has several on their way. While the first waits for the coordinator the next must not overtake it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: dict[ProducerId, asyncio.Future[None]] = {}
        self._tasks = TaskScope(loop, logged_failures(logger, "turn of a producer whose client has gone"))

    def is_free(self, producer_id: ProducerId) -> bool:
        return producer_id not in self._last

    def run(self, producer_id: ProducerId, work: Callable[[], Awaitable[ResultType]]) -> "asyncio.Future[ResultType]":
        """Do the work when everything that was lined up before is done, even if nobody wants the result any more.

        A turn that ended with its client's connection could leave those behind it waiting, or let them overtake.
        """
        before = self._last.get(producer_id)
        done = self._last[producer_id] = self._loop.create_future()
        result: asyncio.Future[ResultType] = self._loop.create_future()
        self._tasks.spawn(self._take_turn(producer_id, before, done, work, result))
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
            elif not isinstance(error, KafkaError):  # A KafkaError is an answer, which nobody waits for any more.
                raise
        finally:
            if self._last[producer_id] is done:
                del self._last[producer_id]
            done.set_result(None)
            del result  # It may keep an error that has left this frame.


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
    if code in _RETRIABLE:
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


class _Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    transaction: AddPartitionsToTxnTransaction
    answer: "asyncio.Future[Errors | ErrorCode]"

    def tell(self, errors: Errors | ErrorCode) -> None:
        if not self.answer.done():  # The client may have gone.
            self.answer.set_result(errors)


class TransactionVerifier:
    def __init__(
        self,
        requests: AskNode,
        coordinator_of: Callable[[TransactionalId], Broker | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._requests = requests
        self._coordinator_of = coordinator_of
        self._loop = loop
        self._questions: dict[NodeId, list[_Question]] = {}
        self._asking: set[NodeId] = set()
        self._tasks = TaskScope(loop, logged_failures(logger, "verification of transactions"))

    async def verify(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Errors:
        """An error, or NONE, for each of the partitions. ``adds`` is for producers that leave the adding to us."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=_topics(partitions),
        )
        deadline = self._loop.time() + _CONCURRENT_LIMIT_MS / 1000
        while True:
            errors = await self._verify(transactional_id, transaction)
            if isinstance(errors, ErrorCode):
                return dict.fromkeys(partitions, errors)
            is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not adds or not is_concurrent or self._loop.time() >= deadline:
                return {partition: errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in partitions}
            await asyncio.sleep(_CONCURRENT_RETRY_MS / 1000)

    async def _verify(
        self, transactional_id: TransactionalId, transaction: AddPartitionsToTxnTransaction
    ) -> Errors | ErrorCode:
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        question = _Question(transaction=transaction, answer=self._loop.create_future())
        self._questions.setdefault(coordinator.node_id, []).append(question)
        if coordinator.node_id not in self._asking:
            self._asking.add(coordinator.node_id)
            self._tasks.spawn(self._ask_all(coordinator.node_id))
        return await question.answer

    async def _ask_all(self, node_id: NodeId) -> None:
        """Ask what there is to ask, one request after the other."""
        try:
            while questions := self._questions.pop(node_id, []):
                asked = _one_of_each_id(questions)
                later = [question for question in questions if question not in asked.values()]
                if later:
                    self._questions[node_id] = later
                await self._ask(node_id, asked)
        finally:
            self._asking.remove(node_id)
            for question in self._questions.pop(node_id, []):  # Those that a failure has kept from being asked.
                question.tell(ErrorCode.NETWORK_EXCEPTION)

    async def _ask(self, node_id: NodeId, asked: dict[str, _Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[question.transaction for question in asked.values()])
        errors: dict[str, Errors | ErrorCode] = {}
        try:
            response = await self._requests.ask(node_id, request, _VERSION, AddPartitionsToTxnResponse, _TIMEOUT_MS)
            errors = _errors(response)
        except PeerError:
            pass  # They are told that the coordinator cannot be reached.
        finally:
            for transactional_id, question in asked.items():
                question.tell(errors.get(transactional_id, ErrorCode.NETWORK_EXCEPTION))


def _one_of_each_id(questions: list[_Question]) -> dict[str, _Question]:
    asked: dict[str, _Question] = {}
    for question in questions:
        asked.setdefault(question.transaction.transactional_id, question)
    return asked


def _topics(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    indexes: dict[TopicName, list[PartitionIndex]] = {}
    for topic, partition in partitions:
        indexes.setdefault(topic, []).append(partition)
    return [AddPartitionsToTxnTopic(name=topic, partitions=ids) for topic, ids in indexes.items()]


def _errors(response: AddPartitionsToTxnResponse) -> dict[str, Errors | ErrorCode]:
    if response.error_code != ErrorCode.NONE:
        return {}
    return {
        result.transactional_id: {
            TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index)): _for_producer(
                ErrorCode(partition.partition_error_code)
            )
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _for_producer(error: ErrorCode) -> ErrorCode:
    """A producer expects PRODUCER_FENCED from its coordinator alone."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
