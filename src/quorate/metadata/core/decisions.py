"""What a command is answered with, and the records that make the answer true."""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_TOPIC_ID, BrokerEpoch, PartitionIndex, ProducerId, TopicId, TopicName
from quorate.metadata.core.image import PartitionState, Topic, TopicIdPartition
from quorate.metadata.core.records import AnyRecord


class PartitionOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one partition in a command that concerns many."""

    topic: TopicName
    partition: PartitionIndex
    topic_id: TopicId = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: As it is after the command, where the partition is known.
    state: PartitionState | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a decision that the asker gets, on whichever node it is."""

    topic: Topic | None = None
    #: The first id of a producer id block.
    producer_id: ProducerId | None = None
    broker_epoch: BrokerEpoch | None = None
    partitions: tuple[PartitionOutcome, ...] = ()


class Decision(Answer, frozen=True, kw_only=True):
    records: tuple[AnyRecord, ...] = ()


def succeeded(name: TopicIdPartition, state: PartitionState) -> PartitionOutcome:
    return PartitionOutcome(topic=name.topic, partition=name.partition, topic_id=name.topic_id, state=state)


def failed(name: TopicIdPartition, error: KafkaError, state: PartitionState | None = None) -> PartitionOutcome:
    return PartitionOutcome(
        topic=name.topic,
        partition=name.partition,
        topic_id=name.topic_id,
        error=error.code,
        message=error.message,
        state=state,
    )
