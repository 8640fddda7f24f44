"""The commands that a node may send to the controller.

A command is sent again when its answer was lost with a quorum leader; each says how a repetition is answered where that
is not the same answer.
"""

from collections.abc import Mapping
from enum import IntEnum
from uuid import UUID

import msgspec

from quorate.kernel.ids import (
    NO_DIRECTORY,
    BrokerEpoch,
    DirectoryId,
    GroupId,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
)
from quorate.metadata.core.decisions import (
    AcceptedRegistration,
    CarriedOut,
    CreatedTopic,
    PartitionOutcomes,
    ProducerIdBlock,
    TaggedCommand,
)
from quorate.metadata.core.quota_entities import QuotaEntityPart
from quorate.metadata.core.records import NO_INCARNATION, BrokerEndpoint
from quorate.metadata.core.security_commands import SecurityCommand


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """The client whose ``controller_mutation_rate`` a change of partitions is counted for."""

    user: str
    client_id: str
    #: Whether the change is refused while the client is over its rate, or only tells it for how long to wait.
    is_strict: bool


class FormCluster(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Give a new cluster its id, a new one where none is named. A cluster that has one keeps it."""

    cluster_id: str = ""


class CreateTopic(TaggedCommand[CreatedTopic], frozen=True, kw_only=True):
    """The only way to create a topic, for an admin client, auto-creation and the node itself.

    Counts of -1 take the cluster's defaults; ``assignments`` names replicas by hand instead of counts.
    Sent again with the ``topic_id`` of the first time it succeeds and changes nothing, also where the topic has been
    deleted since; without one it is answered with TOPIC_ALREADY_EXISTS.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[PartitionIndex, tuple[NodeId, ...]] | None = None
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    #: An internal topic takes as many replicas as there are brokers when there are fewer than asked.
    replication_factor_is_upper_bound: bool = False
    #: Chosen by the submitter, so that its own retry is recognised; None leaves the choice to the controller.
    topic_id: TopicId | None = None
    #: Not said for what the cluster does of its own accord, nor to nodes that would not know of it.
    charged_to: Charge | msgspec.UnsetType = msgspec.UNSET


class DeleteTopic(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Sent again it is answered with UNKNOWN_TOPIC_ID, which says that it is done: no topic ever has that id again."""

    topic_id: TopicId
    charged_to: Charge | msgspec.UnsetType = msgspec.UNSET


class CreatePartitions(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Sent again it is answered with INVALID_PARTITIONS, as the topic already has ``total_count`` partitions."""

    name: TopicName
    total_count: int
    assignments: tuple[tuple[NodeId, ...], ...] | None = None
    charged_to: Charge | msgspec.UnsetType = msgspec.UNSET


class ConfigOperation(IntEnum):
    """Kafka's codes, as IncrementalAlterConfigs has them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    operation: ConfigOperation
    value: str | None = None


class AlterTopicConfigs(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """With ``replace_all``, overrides that no change names are taken away, as the older AlterConfigs has it."""

    name: TopicName
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


class AlterBrokerConfigs(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    node_id: NodeId | None
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


class AlterGroupConfigs(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    group_id: GroupId
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    #: None takes the quota away.
    value: float | None


class AlterClientQuota(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """Change the quotas of one entity, whose parts may come in any order."""

    entity: tuple[QuotaEntityPart, ...]
    changes: tuple[QuotaChange, ...]


class AllocateProducerIds(TaggedCommand[ProducerIdBlock], frozen=True, kw_only=True):
    """Answered with the first id of a block that is this broker's alone; sent again, with that of another block."""

    count: int = 1000


class RegisterBroker(TaggedCommand[AcceptedRegistration], frozen=True, kw_only=True):
    """A broker process has started. Answered with its broker epoch, the same one however often it is sent."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None
    #: Chosen at random by each start of the process.
    incarnation: UUID = NO_INCARNATION
    #: Chosen at random when the data folder was made.
    directory_id: DirectoryId = NO_DIRECTORY
    peer_address: str = ""
    endpoints: tuple[BrokerEndpoint, ...] = ()
    #: A node that is a cluster by itself has nothing to catch up with and starts in one step, unfenced.
    fenced: bool = True


class UnfenceBroker(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """The broker has caught up with the metadata and may lead."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class FenceBroker(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """The broker's session is lost or its process died: the partitions that it leads get another leader."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class BeginControlledShutdown(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """The broker is about to stop: its leaderships move away while it still runs, and it gets no new ones."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class ChangeBrokerRoom(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """The broker's disk is full, so that replicas with room take over what they can, or it takes records again."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    has_room: bool


class LedPartition(msgspec.Struct, frozen=True, gc=False):
    topic_id: TopicId
    partition: PartitionIndex
    leader_epoch: LeaderEpoch


class ResignLeadership(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """A leader cannot serve what lies on its disk as well as another replica in sync can: elect one, if there is any.

    Sent again it changes nothing: the leader epochs are others then.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    partitions: tuple[LedPartition, ...]


class UnregisterBroker(TaggedCommand[CarriedOut], frozen=True, kw_only=True):
    """The broker will not come back. Sent again it is answered with BROKER_ID_NOT_REGISTERED."""

    node_id: NodeId
    #: Remove it although partitions name it as a replica; they stay short of it until they are reassigned.
    even_with_replicas: bool = False


class IsrMember(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A member with the broker epoch of its fetches: one that restarted since then is not in sync (KIP-903)."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class IsrChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    topic_id: TopicId
    partition: PartitionIndex
    leader_epoch: LeaderEpoch
    #: Of the state that the proposal was made on.
    partition_epoch: int
    new_isr: tuple[IsrMember, ...]


class AlterIsr(TaggedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """A partition leader proposes in-sync sets; each partition has its own outcome, in the order of the changes.

    Sent again it is answered with INVALID_UPDATE_VERSION and the state that the first time gave.
    """

    node_id: NodeId
    broker_epoch: BrokerEpoch
    changes: tuple[IsrChange, ...]


class PartitionName(msgspec.Struct, frozen=True, gc=False):
    """Names a partition as clients do, who know no topic ids here."""

    topic: TopicName
    partition: PartitionIndex


class ElectionKind(IntEnum):
    """Kafka's codes, as ElectLeaders has them."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeaders(TaggedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """Without partitions it concerns all of them, and only those that needed an election are reported."""

    kind: ElectionKind
    partitions: tuple[PartitionName, ...] | None


class PartitionReassignment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The replicas that a partition is to have; None cancels what is under way."""

    topic: TopicName
    partition: PartitionIndex
    replicas: tuple[NodeId, ...] | None


class AlterPartitionReassignments(TaggedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    reassignments: tuple[PartitionReassignment, ...]
    allow_replication_factor_change: bool = True


class DrainBroker(TaggedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """Move every replica of the broker elsewhere, so that it can be removed."""

    node_id: NodeId


class RebalancePartitions(TaggedCommand[PartitionOutcomes], frozen=True, kw_only=True):
    """Even out replicas and leaders over the brokers, moving as little data as that takes."""

    #: The most replicas whose data is moved; None for as many as it takes.
    max_moves: int | None = None


Command = (
    FormCluster
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AlterTopicConfigs
    | AlterBrokerConfigs
    | AlterGroupConfigs
    | AlterClientQuota
    | AllocateProducerIds
    | RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | BeginControlledShutdown
    | ChangeBrokerRoom
    | ResignLeadership
    | UnregisterBroker
    | AlterIsr
    | ElectLeaders
    | AlterPartitionReassignments
    | DrainBroker
    | RebalancePartitions
    | SecurityCommand
)
