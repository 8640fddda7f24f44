"""One transactional id: which producer holds it, and how far its transaction has come.

A value never changes; every step makes the next one, which counts once its record is committed. The state machine::

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing or Empty
                 └──────▶ PrepareAbort ───▶ CompleteAbort ───▶ Ongoing or Empty

    ================  ===================================================  ===============================
    in                on                                                   becomes
    ================  ===================================================  ===============================
    Empty, Complete*  partitions are added                                 Ongoing
    Empty, Complete*  InitProducerId                                       Empty, with the next epoch
    Empty, Complete*  an abort of a producer of version 2                  PrepareAbort
    Empty, Complete*  nobody uses the id for ``id_expiration_ms``          forgotten
    Ongoing           EndTxn                                               PrepareCommit, PrepareAbort
    Ongoing           its timeout, or InitProducerId                       PrepareAbort, its producer fenced
    Prepare*          every partition has its marker                       Complete*
    ================  ===================================================  ===============================

What is prepared is decided: markers are sent until every partition has its own, whoever coordinates by then.
"""

from enum import IntEnum

import msgspec

from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from quorate.records.control import EPOCH_PER_TRANSACTION

MAX_PRODUCER_EPOCH = ProducerEpoch(2**15 - 1)
NO_TIMESTAMP_MS = -1


class TransactionState(IntEnum):
    """With the numbers that the log has for them. The last two are never written; tools know them by name."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    #: The producer id before the last step: a request that names it is a repeat, once the epochs are used up.
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    #: The producer id for the next transaction, if the epochs of this one are used up.
    next_producer_id: ProducerId = NO_PRODUCER_ID
    #: The epoch before the producer's own last bump: a request that names it is a repeat. Not in the log.
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    #: Those that need a marker; empty but for a transaction that is ongoing or prepared.
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP_MS
    #: The version of the protocol that the producer speaks.
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def following_producer(self) -> tuple[ProducerId, ProducerEpoch]:
        """What the producer uses after the transaction that is prepared here."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, ProducerEpoch(0)
        return self.producer_id, self.producer_epoch

    @property
    def is_under_way(self) -> bool:
        return self.state is TransactionState.ONGOING or self.state.is_prepared

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms <= now_ms

    def is_expired(self, expiration_ms: int, now_ms: int) -> bool:
        return not self.is_under_way and self.last_update_ms + expiration_ms <= now_ms


def is_epoch_exhausted(epoch: int) -> bool:
    """The last epoch is the coordinator's, to fence the last one that a producer may have."""
    return epoch >= MAX_PRODUCER_EPOCH - 1


def completed(prepared: Transaction, now_ms: int) -> Transaction:
    """The transaction once all its markers are written."""
    producer_id, producer_epoch = prepared.following_producer
    return msgspec.structs.replace(
        prepared,
        state=TransactionState.COMPLETE_COMMIT if prepared.is_commit else TransactionState.COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


def fenced(ongoing: Transaction, now_ms: int) -> Transaction:
    """The transaction as the coordinator aborts it by itself, with an epoch that its producer does not have.

    A producer of version 2 expects the next epoch after each transaction, so it is fenced with the one after that.
    """
    bump = 2 if ongoing.client_version >= EPOCH_PER_TRANSACTION else 1
    return msgspec.structs.replace(
        ongoing,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=ProducerEpoch(min(ongoing.producer_epoch + bump, MAX_PRODUCER_EPOCH)),
        previous_producer_id=ongoing.producer_id,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        last_update_ms=now_ms,
    )
