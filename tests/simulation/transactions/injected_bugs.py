"""Bugs of transactions, one patch each: the simulated clusters have to find them, each by the checker that is for it.

Nothing of production code is changed on disk; a bug is there while its context manager is open.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import msgspec

from quorate.coordination.groups.core.replicated_state import ReplicatedState
from quorate.coordination.transactions import coordinator
from quorate.coordination.transactions.core import decisions, shard
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    ProducerIdNeeded,
    Result,
    VerifyPartitions,
)
from quorate.coordination.transactions.core.effects import Effect, Markers, SendMarkers
from quorate.coordination.transactions.core.shard import TransactionCoordinatorShard
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerId, TopicPartition
from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from quorate.records.control import EPOCH_PER_TRANSACTION, TransactionEnd
from quorate.replication.partition import Partition
from quorate.replication.producers import VerificationGuard
from quorate.storage.transactions import TransactionIndex, TransactionIndexEntry

_Ended = Transaction | ErrorCode | ProducerIdNeeded


@contextmanager
def a_new_coordinator_forgets_a_partition() -> Iterator[None]:
    """Of the markers that its predecessor had decided on, it sends all but one."""
    log_loaded = TransactionCoordinatorShard._log_loaded

    def forgetful(self: TransactionCoordinatorShard, now_ms: int) -> list[Effect]:
        return [
            msgspec.structs.replace(
                effect,
                markers=msgspec.structs.replace(
                    effect.markers, partitions=frozenset(sorted(effect.markers.partitions)[1:])
                ),
            )
            if isinstance(effect, SendMarkers)
            else effect
            for effect in log_loaded(self, now_ms)
        ]

    with patch.object(TransactionCoordinatorShard, "_log_loaded", forgetful):
        yield


@contextmanager
def a_commit_is_an_abort_elsewhere() -> Iterator[None]:
    """Where its partitions have several leaders, only the leader of the first of them is told the truth."""
    request = coordinator._markers_request

    def mixed(
        markers: Markers, partitions: list[TopicPartition], coordinator_epoch: LeaderEpoch
    ) -> WriteTxnMarkersRequest:
        commits = markers.commits and min(markers.partitions) in partitions
        return request(msgspec.structs.replace(markers, commits=commits), partitions, coordinator_epoch)

    with patch.object(coordinator, "_markers_request", mixed):
        yield


@contextmanager
def the_coordinator_does_not_look_at_epochs() -> Iterator[None]:
    """Zombies add partitions to transactions and end them, as if they had never been replaced."""
    claim_error, end = decisions._claim_error, decisions.end_transaction

    def any_claim(
        current: Transaction | None, command: AddPartitions | VerifyPartitions, *, is_pending: bool
    ) -> ErrorCode:
        error = claim_error(current, command, is_pending=is_pending)
        return ErrorCode.NONE if error is ErrorCode.PRODUCER_FENCED else error

    def any_end(current: Transaction | None, command: EndTransaction, *, is_pending: bool, now_ms: int) -> _Ended:
        if current is not None:
            command = msgspec.structs.replace(command, producer_epoch=current.producer_epoch)
        return end(current, command, is_pending=is_pending, now_ms=now_ms)

    with patch.object(decisions, "_claim_error", any_claim), patch.object(shard, "end_transaction", any_end):
        yield


@contextmanager
def the_log_is_stable_up_to_the_watermark() -> Iterator[None]:
    """Transactions that are open are not waited for."""

    def high_watermark(self: Partition) -> Offset:
        return self.high_watermark

    with patch.object(Partition, "last_stable_offset", property(high_watermark)):
        yield


@contextmanager
def aborted_transactions_are_not_indexed() -> Iterator[None]:
    def passed_over(self: TransactionIndex, aborted: TransactionIndexEntry) -> None:
        pass

    with patch.object(TransactionIndex, "add", passed_over):
        yield


@contextmanager
def a_late_end_ends_the_next_transaction() -> Iterator[None]:
    """What version 2 of the protocol was made for: the epoch that EndTxn names is not held against that of the id."""
    end = decisions.end_transaction

    def late_end(current: Transaction | None, command: EndTransaction, *, is_pending: bool, now_ms: int) -> _Ended:
        if current is not None and current.state is TransactionState.ONGOING:
            command = msgspec.structs.replace(command, producer_epoch=current.producer_epoch)
        return end(current, command, is_pending=is_pending, now_ms=now_ms)

    with patch.object(shard, "end_transaction", late_end):
        yield


@contextmanager
def epochs_do_not_grow_with_transactions() -> Iterator[None]:
    """A producer of version 2 goes on with the epoch that it had, so that its next transaction looks like its last."""

    def same_epoch(current: Transaction, command: EndTransaction, *, is_pending: bool, now_ms: int) -> _Ended:
        return decisions._end_by_state(current, command, is_pending=is_pending, now_ms=now_ms)

    with patch.object(decisions, "_end_with_epoch", same_epoch):
        yield


@contextmanager
def offsets_of_aborted_transactions_count() -> Iterator[None]:
    end_transaction = ReplicatedState.end_transaction

    def always_commit(self: ReplicatedState, producer_id: ProducerId, *, is_commit: bool) -> None:
        end_transaction(self, producer_id, is_commit=True)

    with patch.object(ReplicatedState, "end_transaction", always_commit):
        yield


@contextmanager
def a_marker_keeps_the_next_transaction_out() -> Iterator[None]:
    """It was so once: who was faster than the markers of its last transaction was told INVALID_TXN_STATE."""

    def always(self: VerificationGuard, end: TransactionEnd) -> bool:
        return True

    with patch.object(VerificationGuard, "ends_with", always):
        yield


@contextmanager
def a_zombie_ends_what_its_successor_has_begun() -> Iterator[None]:
    """It was so once, and is so in Apache Kafka: the epoch with which it asks for the next one is not looked at."""

    def always(current: Transaction, command: InitProducer) -> bool:
        return True

    with patch.object(decisions, "_holds", always):
        yield


@contextmanager
def a_zombie_is_given_the_epoch_of_its_successor() -> Iterator[None]:
    """It was so once: to be one epoch behind was enough to be taken for a producer that repeats its EndTxn."""
    is_repeat = decisions._is_repeat

    def by_epoch(current: Transaction, command: EndTransaction) -> bool:
        return is_repeat(msgspec.structs.replace(current, client_version=EPOCH_PER_TRANSACTION), command)

    with patch.object(decisions, "_is_repeat", by_epoch):
        yield


@contextmanager
def a_replaced_coordinator_answers_from_what_it_knows() -> Iterator[None]:
    """It was so once: it may not have heard of its successor."""

    def never(result: Result) -> bool:
        return False

    with patch.object(coordinator, "binds", never):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__: bug
    for bug in (
        a_commit_is_an_abort_elsewhere,
        a_new_coordinator_forgets_a_partition,
        the_coordinator_does_not_look_at_epochs,
        the_log_is_stable_up_to_the_watermark,
        aborted_transactions_are_not_indexed,
        a_late_end_ends_the_next_transaction,
        epochs_do_not_grow_with_transactions,
        offsets_of_aborted_transactions_count,
        a_marker_keeps_the_next_transaction_out,
        a_zombie_ends_what_its_successor_has_begun,
        a_zombie_is_given_the_epoch_of_its_successor,
        a_replaced_coordinator_answers_from_what_it_knows,
    )
}
