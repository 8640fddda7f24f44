"""The transactional ids of one partition of ``__transaction_state``: the machine that a coordinator runs for it.

``handle`` takes an event and the time, and returns what its runner must do, in order. A command is decided on what is
committed; while a record about a transactional id is on its way, nothing else is decided about it. So the log never
holds two steps of which the second did not know the first.

A coordinator that has been replaced may not know it, and what it knows is old. So no reply that binds a producer goes
out before a record has been committed or, where there is none to write, its leadership has been confirmed.
"""

from collections.abc import Iterator, Mapping
from typing import assert_never

import msgspec

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    ReplyWhenDurable,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.core.errors import coordinator_error
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    Command,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTransaction,
    EndTransactionResult,
    IdCommand,
    InitProducer,
    InitProducerResult,
    ListTransactions,
    ListTransactionsResult,
    ProducerIdNeeded,
    Result,
    VerifyPartitions,
)
from quorate.coordination.transactions.core.decisions import (
    add_partitions,
    binds,
    end_transaction,
    init_producer,
    refusal,
    verify_partitions,
)
from quorate.coordination.transactions.core.effects import (
    Append,
    CompletionTimer,
    Effect,
    Event,
    ExpiryTimer,
    Markers,
    MarkersWritten,
    SendMarkers,
    TimeoutTimer,
    TimerKey,
)
from quorate.coordination.transactions.core.records import TransactionRecord
from quorate.coordination.transactions.core.transaction import Transaction, completed, fenced
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_ID, ProducerId, TransactionalId

#: Transactional ids that are forgotten with one batch of records.
_EXPIRY_BATCH = 500


class TransactionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the transaction coordinator, with Kafka's defaults."""

    #: The longest timeout that a producer may ask for.
    max_timeout_ms: int = 900_000
    #: How long a transactional id is kept that nobody uses.
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    #: How often transactions that have outlived their timeout are looked for.
    timeout_check_interval_ms: int = 10_000
    #: How often transactional ids that nobody uses are looked for.
    expiry_check_interval_ms: int = 3_600_000
    #: Before the end of a transaction, whose markers are all written, is written again after a failure.
    completion_retry_ms: int = 100


class TransactionCoordinatorShard:
    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self._is_loaded = False
        #: What the log says; changed by ``replay`` alone.
        self._transactions: dict[TransactionalId, Transaction] = {}
        self._in_flight: list[Append] = []
        #: The transactional ids that the appends in flight are about.
        self._pending: set[TransactionalId] = set()

    def replay(self, record: TransactionRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> None:  # noqa: ARG002
        """Apply one record of the log: its runner does this before ``LogLoaded``, afterwards only the shard does.

        ``producer_id`` has no meaning here: nobody writes to ``__transaction_state`` in a transaction.
        """
        if record.transaction is None:
            self._transactions.pop(record.transactional_id, None)
        else:
            self._transactions[record.transactional_id] = record.transaction

    def replay_end(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Nothing is pending that a marker could end."""

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Apply one event; return what its runner must carry out, in order."""
        effects = self._dispatch(event, now_ms)
        for effect in effects:
            if isinstance(effect, AppendToLog):
                self._in_flight.append(effect)
                self._pending.update(record.transactional_id for record in effect.records)
        return effects

    def _dispatch(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case CommandReceived(token=token, command=command):
                if not self._is_loaded:
                    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    return [Reply(token=token, result=refusal(command, error))]
                return [self._command(token, command, now_ms)]
            case TimerFired(key=key):
                return self._timer_fired(key, now_ms)
            case AppendCommitted(append=append):
                return self._append_committed(append, now_ms)
            case AppendFailed(append=append, error=error):
                return self._append_failed(append, error, now_ms)
            case MarkersWritten(markers=markers):
                return self._markers_written(markers, now_ms)
            case LogLoaded():
                return self._log_loaded(now_ms)
            case LeadershipLost():
                return self._resign()
            case _:
                assert_never(event)

    # Commands.

    def _command(self, token: Token, command: Command, now_ms: int) -> Effect:
        match command:
            case InitProducer() | AddPartitions() | EndTransaction():
                return self._decide(token, command, now_ms)
            case VerifyPartitions():
                current, is_pending = self._current(command.transactional_id)
                return self._reply(token, command, verify_partitions(current, command, is_pending=is_pending))
            case DescribeTransaction():
                return Reply(token=token, result=describe_transaction(self._transactions, command))
            case ListTransactions():
                return Reply(token=token, result=list_transactions(self._transactions, command, now_ms))
            case _:
                assert_never(command)

    def _decide(self, token: Token, command: InitProducer | AddPartitions | EndTransaction, now_ms: int) -> Effect:
        current, is_pending = self._current(command.transactional_id)
        decided: Transaction | ErrorCode | ProducerIdNeeded
        match command:
            case InitProducer():
                decided = self._init_producer(current, command, is_pending=is_pending, now_ms=now_ms)
            case AddPartitions():
                decided = add_partitions(current, command, is_pending=is_pending, now_ms=now_ms)
            case EndTransaction():
                decided = end_transaction(current, command, is_pending=is_pending, now_ms=now_ms)
        match decided:
            case Transaction():
                record = TransactionRecord(transactional_id=command.transactional_id, transaction=decided)
                result = _success(command, decided)
                return AppendToLog(
                    records=(record,), then=ReplyWhenDurable(token=token, command=command, result=result)
                )
            case ProducerIdNeeded():
                return Reply(token=token, result=decided)
            case ErrorCode.NONE:
                assert current is not None
                return self._reply(token, command, _success(command, current))
            case _:
                return self._reply(token, command, refusal(command, decided))

    def _reply(self, token: Token, command: IdCommand, result: Result) -> Effect:
        """Answer from what is committed. While more is on its way, nothing is told that binds the producer."""
        if command.transactional_id in self._pending and binds(result):
            result = refusal(command, ErrorCode.CONCURRENT_TRANSACTIONS)
        return Reply(token=token, result=result)

    def _init_producer(
        self, current: Transaction | None, command: InitProducer, *, is_pending: bool, now_ms: int
    ) -> Transaction | ErrorCode | ProducerIdNeeded:
        if not 0 < command.timeout_ms <= self._config.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return init_producer(current, command, is_pending=is_pending, now_ms=now_ms)

    def _current(self, transactional_id: TransactionalId) -> tuple[Transaction | None, bool]:
        return self._transactions.get(transactional_id), transactional_id in self._pending

    # The fate of appends and markers.

    def _append_committed(self, append: Append, now_ms: int) -> list[Effect]:
        self._settle(append)
        effects: list[Effect] = []
        if append.then is not None:
            effects.append(Reply(token=append.then.token, result=append.then.result))
        for record in append.records:
            self.replay(record)
            if record.transaction is not None and record.transaction.state.is_prepared:
                effects.append(self._finish(record.transactional_id, record.transaction, now_ms))
        return effects

    def _append_failed(self, append: Append, error: ErrorCode, now_ms: int) -> list[Effect]:
        self._settle(append)
        if append.then is not None:
            return [Reply(token=append.then.token, result=refusal(append.then.command, coordinator_error(error)))]
        # Timeouts and expiry are looked for again; a transaction that is prepared has nobody else to end it.
        retry_at_ms = now_ms + self._config.completion_retry_ms
        return [
            SetTimer(key=CompletionTimer(transactional_id=record.transactional_id), at_ms=retry_at_ms)
            for record in append.records
            if self._transactions[record.transactional_id].state.is_prepared
        ]

    def _settle(self, append: Append) -> None:
        self._in_flight.remove(append)
        self._pending.difference_update(record.transactional_id for record in append.records)

    def _finish(self, transactional_id: TransactionalId, prepared: Transaction, now_ms: int) -> Effect:
        if not prepared.partitions:
            return self._complete(transactional_id, prepared, now_ms)
        return SendMarkers(
            markers=Markers(
                transactional_id=transactional_id,
                producer_id=prepared.producer_id,
                producer_epoch=prepared.producer_epoch,
                commits=prepared.is_commit,
                partitions=prepared.partitions,
                transaction_version=prepared.client_version,
            )
        )

    def _complete(self, transactional_id: TransactionalId, prepared: Transaction, now_ms: int) -> Append:
        transaction = completed(prepared, now_ms)
        record = TransactionRecord(transactional_id=transactional_id, transaction=transaction)
        return AppendToLog(records=(record,), then=None)

    def _markers_written(self, markers: Markers, now_ms: int) -> list[Effect]:
        prepared, is_pending = self._current(markers.transactional_id)
        assert prepared is not None
        assert prepared.state.is_prepared
        assert not is_pending
        return [self._complete(markers.transactional_id, prepared, now_ms)]

    # Time.

    def _timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        match key:
            case TimeoutTimer():
                return [*self._abort_timed_out(now_ms), self._next_timeout_check(now_ms)]
            case ExpiryTimer():
                return [*self._forget_expired(now_ms), self._next_expiry_check(now_ms)]
            case CompletionTimer(transactional_id=transactional_id):
                return [self._complete(transactional_id, self._transactions[transactional_id], now_ms)]
            case _:
                assert_never(key)

    def _next_timeout_check(self, now_ms: int) -> Effect:
        return SetTimer(key=TimeoutTimer(), at_ms=now_ms + self._config.timeout_check_interval_ms)

    def _next_expiry_check(self, now_ms: int) -> Effect:
        return SetTimer(key=ExpiryTimer(), at_ms=now_ms + self._config.expiry_check_interval_ms)

    def _abort_timed_out(self, now_ms: int) -> list[Effect]:
        return [
            AppendToLog(
                records=(TransactionRecord(transactional_id=transactional_id, transaction=fenced(ongoing, now_ms)),),
                then=None,
            )
            for transactional_id, ongoing in self._settled()
            if ongoing.is_timed_out(now_ms)
        ]

    def _forget_expired(self, now_ms: int) -> list[Effect]:
        expired = [
            TransactionRecord(transactional_id=transactional_id, transaction=None)
            for transactional_id, transaction in self._settled()
            if transaction.is_expired(self._config.id_expiration_ms, now_ms)
        ]
        return [
            AppendToLog(records=tuple(expired[start : start + _EXPIRY_BATCH]), then=None)
            for start in range(0, len(expired), _EXPIRY_BATCH)
        ]

    def _settled(self) -> Iterator[tuple[TransactionalId, Transaction]]:
        return (item for item in self._transactions.items() if item[0] not in self._pending)

    # Its beginning and its end.

    def _log_loaded(self, now_ms: int) -> list[Effect]:
        """What an earlier coordinator has prepared is decided. It may not have sent all markers: send them again."""
        self._is_loaded = True
        effects = [self._next_timeout_check(now_ms), self._next_expiry_check(now_ms)]
        for transactional_id, transaction in self._transactions.items():
            if transaction.state.is_prepared:
                effects.append(self._finish(transactional_id, transaction, now_ms))
        return effects

    def _resign(self) -> list[Effect]:
        """Answer everybody who waits: this node coordinates their transactions no longer."""
        self._is_loaded = False
        drained, self._in_flight = self._in_flight, []
        return [
            Reply(token=append.then.token, result=refusal(append.then.command, ErrorCode.NOT_COORDINATOR))
            for append in drained
            if append.then is not None
        ]


def _success(command: InitProducer | AddPartitions | EndTransaction, transaction: Transaction) -> Result:
    producer_id, producer_epoch = transaction.following_producer
    match command:
        case InitProducer() if transaction.state.is_prepared:
            # An earlier producer's transaction is aborted first. When the asker comes again, the id is its own.
            return InitProducerResult(error=ErrorCode.CONCURRENT_TRANSACTIONS)
        case InitProducer():
            return InitProducerResult(producer_id=producer_id, producer_epoch=producer_epoch)
        case AddPartitions():
            return AddPartitionsResult()
        case EndTransaction():
            return EndTransactionResult(producer_id=producer_id, producer_epoch=producer_epoch)
        case _:
            assert_never(command)


def describe_transaction(
    transactions: Mapping[TransactionalId, Transaction], command: DescribeTransaction
) -> DescribeTransactionResult:
    transaction = transactions.get(command.transactional_id)
    if transaction is None:
        return DescribeTransactionResult(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return DescribeTransactionResult(transaction=transaction)


def list_transactions(
    transactions: Mapping[TransactionalId, Transaction], command: ListTransactions, now_ms: int
) -> ListTransactionsResult:
    return ListTransactionsResult(
        transactions=tuple(
            (transactional_id, transaction)
            for transactional_id, transaction in transactions.items()
            if _passes(command, transaction, now_ms)
        )
    )


def _passes(command: ListTransactions, transaction: Transaction, now_ms: int) -> bool:
    if command.states and transaction.state not in command.states:
        return False
    if command.producer_ids and transaction.producer_id not in command.producer_ids:
        return False
    return command.min_duration_ms < 0 or (
        transaction.is_under_way and now_ms - transaction.start_ms > command.min_duration_ms
    )
