"""A shard of the coordinator and the world around it, by hand: a log that commits when told to, markers, a clock."""

from typing import TypeVar

import msgspec

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CommandReceived,
    LogLoaded,
    Reply,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    Command,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTransaction,
    EndTransactionResult,
    InitProducer,
    InitProducerResult,
    ProducerIdNeeded,
    Result,
    VerifyPartitions,
    VerifyPartitionsResult,
)
from quorate.coordination.transactions.core.effects import (
    Append,
    Effect,
    Event,
    Markers,
    MarkersWritten,
    SendMarkers,
    TimerKey,
)
from quorate.coordination.transactions.core.records import TransactionRecord
from quorate.coordination.transactions.core.shard import TransactionConfig, TransactionCoordinatorShard
from quorate.coordination.transactions.core.transaction import Transaction
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId

ID = TransactionalId("payments")
P0 = TopicPartition(TopicName("orders"), PartitionIndex(0))
P1 = TopicPartition(TopicName("orders"), PartitionIndex(1))
Producer = tuple[ProducerId, ProducerEpoch]

ResultType = TypeVar("ResultType", bound=Result)


class Conversation:
    """Appends are committed at once unless ``holds_appends``; markers wait until they are said to be written."""

    def __init__(self, config: TransactionConfig | None = None, log: list[TransactionRecord] | None = None) -> None:
        self.config = config or TransactionConfig()
        self.shard = TransactionCoordinatorShard(self.config)
        self.log: list[TransactionRecord] = []
        self.now_ms = 1_000_000
        self.holds_appends = False
        self.appends: list[Append] = []
        self.markers: list[Markers] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[Token, Result] = {}
        self._next_token = 0
        self._next_producer_id = 1000
        for record in log or ():
            self.log.append(record)
            self.shard.replay(record)
        self.report(LogLoaded())

    # What clients ask.

    def send(self, command: Command) -> Token:
        token = Token(self._next_token)
        self._next_token += 1
        self.report(CommandReceived(token=token, command=command))
        return token

    def ask(self, command: Command, result_type: type[ResultType]) -> ResultType:
        result = self.replies[self.send(command)]
        assert isinstance(result, result_type)
        return result

    def init(self, expected: Producer | None = None, timeout_ms: int = 60_000) -> InitProducerResult:
        command = InitProducer(transactional_id=ID, timeout_ms=timeout_ms)
        if expected is not None:
            command = InitProducer(
                transactional_id=ID,
                timeout_ms=timeout_ms,
                expected_producer_id=expected[0],
                expected_producer_epoch=expected[1],
            )
        result = self.replies[self.send(command)]
        if isinstance(result, ProducerIdNeeded):
            new_id = self._new_producer_id()
            result = self.replies[self.send(msgspec.structs.replace(command, new_producer_id=new_id))]
        assert isinstance(result, InitProducerResult)
        return result

    def new_producer(self) -> Producer:
        result = self.init()
        assert result.error is ErrorCode.NONE
        return result.producer_id, result.producer_epoch

    def add(self, producer: Producer, *partitions: TopicPartition, version: int = 2) -> ErrorCode:
        command = AddPartitions(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            partitions=frozenset(partitions),
            client_version=version,
        )
        return self.ask(command, AddPartitionsResult).error

    def verify(self, producer: Producer, *partitions: TopicPartition) -> VerifyPartitionsResult:
        return self.ask(verification(producer, *partitions), VerifyPartitionsResult)

    def is_verified_at_once(self, producer: Producer, *partitions: TopicPartition) -> bool:
        return self.replies.get(self.send(verification(producer, *partitions))) == VerifyPartitionsResult()

    def end(self, producer: Producer, *, commits: bool, version: int = 2) -> EndTransactionResult:
        command = EndTransaction(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            commits=commits,
            client_version=version,
        )
        result = self.replies[self.send(command)]
        if isinstance(result, ProducerIdNeeded):
            new_id = self._new_producer_id()
            result = self.replies[self.send(msgspec.structs.replace(command, new_producer_id=new_id))]
        assert isinstance(result, EndTransactionResult)
        return result

    def _new_producer_id(self) -> ProducerId:
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id)

    def described(self) -> Transaction:
        transaction = self.ask(DescribeTransaction(transactional_id=ID), DescribeTransactionResult).transaction
        assert transaction is not None
        return transaction

    # What the world does.

    def commit_appends(self) -> None:
        while self.appends:
            self._commit(self.appends.pop(0))

    def fail_append(self, error: ErrorCode) -> None:
        self.report(AppendFailed(append=self.appends.pop(0), error=error))

    def write_markers(self) -> None:
        while self.markers:
            self.report(MarkersWritten(markers=self.markers.pop(0)))

    def fire(self, key: TimerKey) -> None:
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        self.report(TimerFired(key=key))

    def restart(self) -> "Conversation":
        """Another coordinator, that knows what the log says and nothing else."""
        successor = Conversation(self.config, self.log)
        successor.now_ms = self.now_ms
        successor._next_producer_id = self._next_producer_id + 100
        return successor

    def report(self, event: Event) -> list[Effect]:
        effects = self.shard.handle(event, self.now_ms)
        for effect in effects:
            match effect:
                case Reply(token=token, result=result):
                    assert token not in self.replies, "one request, one reply"
                    self.replies[token] = result
                case SetTimer(key=key, at_ms=at_ms):
                    self.timers[key] = at_ms
                case SendMarkers(markers=markers):
                    self.markers.append(markers)
                case AppendToLog() if self.holds_appends:
                    self.appends.append(effect)
                case AppendToLog():
                    self._commit(effect)
        return effects

    def _commit(self, append: Append) -> None:
        self.log.extend(append.records)
        self.report(AppendCommitted(append=append))


def verification(producer: Producer, *partitions: TopicPartition) -> VerifyPartitions:
    return VerifyPartitions(
        transactional_id=ID,
        producer_id=producer[0],
        producer_epoch=producer[1],
        partitions=frozenset(partitions),
    )
