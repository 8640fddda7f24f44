"""The transaction coordinator of this node: what it does beside running the shards of ``__transaction_state``.

It takes new producer ids where a shard needs one, and has markers sent.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

import msgspec

from quorate.coordination.coordinator import AskNode, Coordinator, CoordinatorEnvironment
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.runtime import ShardRunner
from quorate.coordination.transactions.core import records
from quorate.coordination.transactions.core.commands import (
    Command,
    EndTransaction,
    IdCommand,
    InitProducer,
    ListTransactions,
    ListTransactionsResult,
    ProducerIdNeeded,
    Result,
)
from quorate.coordination.transactions.core.effects import MarkersWritten, SendMarkers
from quorate.coordination.transactions.core.records import TransactionRecord
from quorate.coordination.transactions.core.refusal import binds, refusal
from quorate.coordination.transactions.core.shard import TransactionConfig, TransactionCoordinatorShard
from quorate.coordination.transactions.marker_sender import MarkerSender
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, ProducerId, TransactionalId
from quorate.kernel.topic_names import TRANSACTION_STATE
from quorate.metadata.core.commands import CreateTopic
from quorate.replication.partition import Partition

ResultType = TypeVar("ResultType", bound=Result)
TransactionShardRunner = ShardRunner[Command, Result, TransactionRecord, MarkersWritten, SendMarkers]


class TransactionCoordinator(Coordinator[TransactionalId, Command, Result, TransactionShardRunner]):
    def __init__(
        self,
        environment: CoordinatorEnvironment,
        requests: AskNode,
        new_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        super().__init__(environment, TRANSACTION_STATE)
        self._new_producer_id = new_producer_id
        self._markers = MarkerSender(requests, environment.metadata, environment.loop)

    async def ask(self, command: IdCommand, result_type: type[ResultType]) -> ResultType:
        """Have the id's shard carry out the command, if this node coordinates its transactions."""
        result = await self._ask_shard(command.transactional_id, command)
        if isinstance(result, ProducerIdNeeded) and isinstance(command, InitProducer | EndTransaction):
            try:
                new_id = await self._new_producer_id()
            except KafkaError as error:
                result = refusal(command, error.code)
            else:
                with_id = msgspec.structs.replace(command, new_producer_id=new_id)
                result = await self._ask_shard(command.transactional_id, with_id)
        assert isinstance(result, result_type)
        return result

    async def list_transactions(self, command: ListTransactions) -> ListTransactionsResult:
        results = [cast(ListTransactionsResult, result) for result in await self._ask_all_shards(command)]
        return ListTransactionsResult(
            error=next((result.error for result in results if result.error is not ErrorCode.NONE), ErrorCode.NONE),
            transactions=tuple(transaction for result in results for transaction in result.transactions),
        )

    # What tells transactions from groups.

    def _new_runner(self, partition: Partition) -> TransactionShardRunner:
        environment = self._environment
        return ShardRunner(
            TransactionCoordinatorShard(self._config()),
            CoordinatorLog(partition, records, environment.loop, environment.executor),
            loop=environment.loop,
            clock=environment.clock,
            on_failure=self._runner_failed,
            own_work=partial(self._send_markers, partition.leader_epoch),
        )

    async def _send_markers(self, coordinator_epoch: LeaderEpoch, effect: SendMarkers) -> MarkersWritten:
        await self._markers.send(effect.markers, coordinator_epoch)
        return MarkersWritten(markers=effect.markers)

    def _refusal(self, command: Command, error: ErrorCode) -> Result:
        return refusal(command, error)

    def _binds(self, result: Result) -> bool:
        return binds(result)

    def _topic_to_create(self) -> CreateTopic:
        setting = self._environment.int_config
        return CreateTopic(
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

    def _config(self) -> TransactionConfig:
        setting = self._environment.int_config
        return TransactionConfig(
            max_timeout_ms=setting("transaction.max.timeout.ms"),
            id_expiration_ms=setting("transactional.id.expiration.ms"),
            timeout_check_interval_ms=setting("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_check_interval_ms=setting("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )
