"""Asks the coordinator of a transaction whether a partition belongs to it, or adds it, before records are appended.

Without that a record of a producer whose transaction is over could come late, open it anew at the partition, and hang
there (KIP-890). What comes up while a coordinator is being asked goes to it with the next request, all at once.
"""

import asyncio
from collections.abc import Callable, Collection

import msgspec

from quorate.coordination.transactions.ask_node import AskNode
from quorate.kernel.errors import ErrorCode
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
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from quorate.transport.peers.errors import PeerError

_VERSION = 5
_TIMEOUT_MS = 5_000
#: A producer may be faster with its next transaction than the markers of its last: give them this long, as Kafka does.
_CONCURRENT_RETRY_MS = 10
_CONCURRENT_LIMIT_MS = 100

Errors = dict[TopicPartition, ErrorCode]


class _Question(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    transaction: AddPartitionsToTxnTransaction
    answer: "asyncio.Future[Errors | ErrorCode]"


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
        self._asking: dict[NodeId, asyncio.Task[None]] = {}

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
            self._asking[coordinator.node_id] = self._loop.create_task(self._ask_all(coordinator.node_id))
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
            del self._asking[node_id]

    async def _ask(self, node_id: NodeId, asked: dict[str, _Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[question.transaction for question in asked.values()])
        try:
            response = await self._requests.ask(node_id, request, _VERSION, AddPartitionsToTxnResponse, _TIMEOUT_MS)
            errors = _errors(response)
        except PeerError:
            errors = {}
        for transactional_id, question in asked.items():
            if not question.answer.done():  # The client may have gone.
                question.answer.set_result(errors.get(transactional_id, ErrorCode.NETWORK_EXCEPTION))


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
    """Producers know this one only from their coordinator."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
