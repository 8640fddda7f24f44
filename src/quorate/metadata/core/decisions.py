"""Decisions: the answer that a command asks for, and the records that make it true.

``PartitionEdits`` gathers the new states of partitions during one decision: each changed partition gives one record,
whatever the number of its edits, and its epochs are computed here and only here.
"""

from typing import Generic, TypeVar

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_TOPIC_ID, BrokerEpoch, LeaderEpoch, PartitionIndex, ProducerId, TopicId, TopicName
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic, TopicIdPartition
from quorate.metadata.core.image_draft import partition_record
from quorate.metadata.core.records import AnyRecord, PartitionChanged
from quorate.security.acls import Acl
from quorate.security.delegation_token import DelegationToken


class PartitionOutcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The outcome for one partition of a command that concerns many."""

    topic: TopicName
    partition: PartitionIndex
    topic_id: TopicId = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: As it is after the command, where the partition is known.
    state: PartitionState | None = None


class CarriedOut(msgspec.Struct, frozen=True):
    """The answer to a command that asks for nothing more."""

    #: For how long a client that is charged for it is to be held back.
    throttle_time_ms: int = 0


class CreatedTopic(msgspec.Struct, frozen=True):
    topic: Topic
    throttle_time_ms: int = 0


class ProducerIdBlock(msgspec.Struct, frozen=True):
    first: ProducerId


class AcceptedRegistration(msgspec.Struct, frozen=True):
    broker_epoch: BrokerEpoch


class PartitionOutcomes(msgspec.Struct, frozen=True):
    """One for each partition that the command named or, where it named none, for each that it changed."""

    partitions: tuple[PartitionOutcome, ...]


class DeletedAcls(msgspec.Struct, frozen=True):
    acls: tuple[Acl, ...]


class GrantedToken(msgspec.Struct, frozen=True):
    """A delegation token as it is from now on."""

    token: DelegationToken


class TokenExpiry(msgspec.Struct, frozen=True):
    """When the token ends, or has ended."""

    expires_ms: int


#: The part of a decision that the submitter of the command gets, on whichever node it is.
Answer = (
    CarriedOut
    | CreatedTopic
    | ProducerIdBlock
    | AcceptedRegistration
    | PartitionOutcomes
    | DeletedAcls
    | GrantedToken
    | TokenExpiry
)
AnswerT_co = TypeVar("AnswerT_co", bound=Answer, covariant=True)


class TaggedCommand(msgspec.Struct, Generic[AnswerT_co], frozen=True, kw_only=True, tag_field="command", tag=True):
    """A command that is answered with an ``AnswerT_co``; the tag names it on its way to the quorum leader."""


_CARRIED_OUT = CarriedOut()


class Decision(msgspec.Struct, Generic[AnswerT_co], frozen=True, kw_only=True):
    records: tuple[AnyRecord, ...] = ()
    answer: AnswerT_co


def done(*records: AnyRecord) -> Decision[CarriedOut]:
    return Decision(records=records, answer=_CARRIED_OUT)


#: Of each of several commands, in their order.
Outcomes = list[Answer | KafkaError]


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


class PartitionEdits:
    """Later edits of a decision see the earlier ones. An edit sets no epochs: they follow from the change."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._edits: dict[TopicIdPartition, _Edit] = {}

    def current(self, name: TopicIdPartition) -> PartitionState:
        edit = self._edits.get(name)
        return self._original(name) if edit is None else edit.state

    def change(
        self, name: TopicIdPartition, new: PartitionState, *, unclean: bool = False, even_if_same: bool = False
    ) -> PartitionState:
        """Make this the partition's state. The leader epoch grows by one if leadership changed in any edit.

        It grows, too, where a replica is taken away: that one deletes its log, and if it came back in the same leader
        epoch, the leader would believe that it still has what it once reported.

        ``even_if_same`` gives a new partition epoch to a state that does not change, which rules out for good every
        proposal made from the old one.
        """
        before = self.current(name)
        if new == before and not even_if_same:
            return before
        original = self._original(name)
        edit = self._edits.get(name)
        loses_replica = not set(before.replicas) <= set(new.replicas)
        leads_anew = loses_replica or new.leader != before.leader or (edit is not None and edit.leads_anew)
        state = msgspec.structs.replace(
            new,
            leader_epoch=LeaderEpoch(original.leader_epoch + leads_anew),
            partition_epoch=original.partition_epoch + 1,
        )
        self._edits[name] = _Edit(
            state=state, leads_anew=leads_anew, unclean=unclean or (edit is not None and edit.unclean)
        )
        return state

    def records(self) -> tuple[PartitionChanged, ...]:
        return tuple(partition_record(name, edit.state, unclean=edit.unclean) for name, edit in self._edits.items())

    def _original(self, name: TopicIdPartition) -> PartitionState:
        return self._image.topics[name.topic].partitions[name.partition]


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    state: PartitionState
    leads_anew: bool
    unclean: bool
