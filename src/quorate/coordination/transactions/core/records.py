"""The records in ``__transaction_state`` and their bytes, exactly as Apache Kafka writes them.

A key is an int16 that says what kind of record it is, and the transactional id. Values are written in version 1, which
is flexible: what later releases add are tagged fields, and those that are not known here are passed over. Version 0 is
read, too.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from quorate.protocol.codec import decode_part, decode_versioned, encode_versioned
from quorate.protocol.errors import ProtocolError
from quorate.protocol.schema import Int8, Int16, Int32, Int64, Message, String, Tagged, VersionedMessage, Versions

_KEY_VERSION = 0
_VALUE_VERSION = 1
_NOT_FLEXIBLE = 2**15 - 1


class TransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of ``__transaction_state``; without a transaction it forgets the transactional id."""

    transactional_id: TransactionalId
    transaction: Transaction | None


class TransactionLogKey(VersionedMessage, frozen=True, kw_only=True):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = _NOT_FLEXIBLE

    transactional_id: String = ""


class PartitionsSchema(Message, frozen=True, kw_only=True):
    topic: String = ""
    partition_ids: Sequence[Int32] = ()


class TransactionLogValue(VersionedMessage, frozen=True, kw_only=True):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, Versions(1), Tagged(0)] = -1
    next_producer_id: Annotated[Int64, Versions(1), Tagged(1)] = -1
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Sequence[PartitionsSchema] | None = ()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, Versions(1), Tagged(2)] = 0


def encode_key(record: TransactionRecord) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=record.transactional_id), _KEY_VERSION)


def encode_value(record: TransactionRecord) -> bytes | None:
    transaction = record.transaction
    if transaction is None:
        return None
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return encode_versioned(value, _VALUE_VERSION)


def _by_topic(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None  # As Kafka has it, which tells "none yet" from "none left".
    indexes: dict[TopicName, list[PartitionIndex]] = {}
    for topic, partition in sorted(transaction.partitions):
        indexes.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in indexes.items()]


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord | None:
    """The record, or None for a kind that a later release has added."""
    if int.from_bytes(key[:2], signed=True) != _KEY_VERSION:
        return None
    try:
        decoded_key, _ = decode_part(TransactionLogKey, key, _KEY_VERSION, 2)
        return TransactionRecord(
            transactional_id=TransactionalId(decoded_key.transactional_id),
            transaction=None if value is None else _transaction(decode_versioned(TransactionLogValue, value)),
        )
    except (ProtocolError, ValueError) as error:
        raise CorruptCoordinatorRecord(f"cannot read record with key {bytes(key)[:64].hex()}: {error}") from error


def _transaction(value: TransactionLogValue) -> Transaction:
    return Transaction(
        producer_id=ProducerId(value.producer_id),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        producer_epoch=ProducerEpoch(value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(TopicName(schema.topic), PartitionIndex(index))
            for schema in value.transaction_partitions or ()
            for index in schema.partition_ids
        ),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )
