"""The transaction coordinator of this node: which shards it runs, and which shard a request belongs to.

A transactional id belongs to one partition of ``__transaction_state``, and whoever leads that partition coordinates its
transactions. The metadata image says who that is; there is no other place to ask.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import msgspec

from quorate.coordination.answers import vouched_for
from quorate.coordination.coordinator import CoordinatorEnvironment
from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.transactions.ask_node import AskNode
from quorate.coordination.transactions.core.commands import (
    EndTransaction,
    IdCommand,
    InitProducer,
    ListTransactions,
    ListTransactionsResult,
    ProducerIdNeeded,
    Result,
)
from quorate.coordination.transactions.core.config import TransactionConfig
from quorate.coordination.transactions.core.refusal import binds, refusal
from quorate.coordination.transactions.core.shard import TransactionCoordinatorShard
from quorate.coordination.transactions.marker_sender import MarkerSender
from quorate.coordination.transactions.shard_runner import TransactionShardRunner
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, PartitionLeader, ProducerId, TopicName, TransactionalId
from quorate.kernel.topic_names import TRANSACTION_STATE
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import Broker, Delta, MetadataImage

logger = logging.getLogger(__name__)

ResultType = TypeVar("ResultType", bound=Result)


class TransactionCoordinator:
    def __init__(
        self,
        environment: CoordinatorEnvironment,
        requests: AskNode,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        self._environment = environment
        self._new_producer_id = new_producer_id
        self._runners: dict[PartitionIndex, TransactionShardRunner] = {}
        self._markers = MarkerSender(requests, environment.metadata, environment.loop)

    def start(self) -> None:
        metadata, partitions = self._environment.metadata, self._environment.partitions
        topic = metadata.image.topics.get(TRANSACTION_STATE)
        for index in () if topic is None else topic.partitions:
            self._leadership_changed(TRANSACTION_STATE, index, partitions.own_leadership(TRANSACTION_STATE, index))
        metadata.subscribe(self._topics_deleted)
        partitions.on_role_changed(self._leadership_changed)

    def stop(self) -> None:
        for index in list(self._runners):
            self._stop_runner(index)

    async def ask(self, command: IdCommand, result_type: type[ResultType]) -> ResultType:
        """Have the id's shard carry out the command, if this node coordinates its transactions."""
        result = await self._ask_shard(command)
        if isinstance(result, ProducerIdNeeded) and isinstance(command, InitProducer | EndTransaction):
            try:
                new_id = await self._new_producer_id()
            except KafkaError as error:
                result = refusal(command, error.code)
            else:
                result = await self._ask_shard(msgspec.structs.replace(command, new_producer_id=new_id))
        assert isinstance(result, result_type)
        return result

    async def list_transactions(self, command: ListTransactions) -> ListTransactionsResult:
        results = [
            cast(ListTransactionsResult, result)
            for result in await asyncio.gather(*(runner.ask(command) for runner in list(self._runners.values())))
        ]
        return ListTransactionsResult(
            error=next((result.error for result in results if result.error is not ErrorCode.NONE), ErrorCode.NONE),
            transactions=tuple(transaction for result in results for transaction in result.transactions),
        )

    async def find(self, transactional_id: TransactionalId) -> Broker:
        """The node that coordinates the id. Makes the topic of transactions the first time anybody asks."""
        if TRANSACTION_STATE not in self._environment.metadata.image.topics:
            await self._create_topic()
        broker = self.known_coordinator(transactional_id)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return broker

    def known_coordinator(self, transactional_id: TransactionalId) -> Broker | None:
        image = self._environment.metadata.image
        index = self._partition_for(transactional_id)
        leader = None if index is None else image.partition_leader(TRANSACTION_STATE, index)
        return None if leader is None else image.brokers.get(leader.node_id)

    async def _create_topic(self) -> None:
        setting = self._environment.int_config
        command = CreateTopic(
            name=TRANSACTION_STATE,
            partition_count=setting("transaction.state.log.num.partitions"),
            replication_factor=setting("transaction.state.log.replication.factor"),
            replication_factor_is_upper_bound=True,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(setting("transaction.state.log.min.isr")),
                "segment.bytes": str(setting("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
        try:
            await self._environment.metadata.submit_one(command)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("topic of transactions not created node=%s error=%s", self._environment.node_id, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def _partition_for(self, transactional_id: TransactionalId) -> PartitionIndex | None:
        topic = self._environment.metadata.image.topics.get(TRANSACTION_STATE)
        return None if topic is None else partition_for(transactional_id, len(topic.partitions))

    async def _ask_shard(self, command: IdCommand) -> Result:
        index = self._partition_for(command.transactional_id)
        runner = None if index is None else self._runners.get(index)
        refused = refusal(command, ErrorCode.NOT_COORDINATOR)
        if runner is None:
            return refused
        return await vouched_for(runner.ask(command), binds, runner, self._environment.metadata, otherwise=refused)

    # Which shards this node runs.

    def _topics_deleted(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 - a listener's signature
        if any(topic.name == TRANSACTION_STATE for topic in delta.deleted_topics):
            self.stop()

    def _leadership_changed(self, topic: TopicName, index: PartitionIndex, leader: PartitionLeader | None) -> None:
        if topic != TRANSACTION_STATE:
            return
        leads = leader is not None and leader.node_id == self._environment.node_id
        runner = self._runners.get(index)
        if runner is not None and (not leads or leader is None or runner.leader_epoch != leader.leader_epoch):
            self._stop_runner(index)
        if leads and index not in self._runners:
            self._start_runner(index)

    def _start_runner(self, index: PartitionIndex) -> None:
        environment = self._environment
        try:
            partition = environment.partitions.led(TRANSACTION_STATE, index)
        except KafkaError as error:
            logger.error("transactions not coordinated partition=%s-%s error=%s", TRANSACTION_STATE, index, error)
            return
        runner = self._runners[index] = TransactionShardRunner(
            TransactionCoordinatorShard(self._config()),
            CoordinatorLog(partition, environment.loop, environment.executor),
            partition.leader_epoch,
            loop=environment.loop,
            clock=environment.clock,
            send_markers=self._markers.send,
            on_failure=lambda failed, error: self._runner_failed(index, failed, error),
        )
        runner.start()

    def _runner_failed(
        self, index: PartitionIndex, failed: TransactionShardRunner, error: Exception | ErrorCode
    ) -> None:
        """What its log says cannot be known: better no coordinator than one that has forgotten what is decided."""
        logger.error(
            "transactions not coordinated partition=%s-%s epoch=%s error=%r",
            TRANSACTION_STATE,
            index,
            failed.leader_epoch,
            error,
        )
        if self._runners.get(index) is failed:
            self._stop_runner(index)

    def _stop_runner(self, index: PartitionIndex) -> None:
        self._runners.pop(index).stop()

    def _config(self) -> TransactionConfig:
        setting = self._environment.int_config
        return TransactionConfig(
            max_timeout_ms=setting("transaction.max.timeout.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            timeout_check_interval_ms=setting("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_check_interval_ms=setting("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
