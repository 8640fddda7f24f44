"""The values that a metadata image is made of: brokers, topics, partitions, deletions, and what a replay changed."""

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

import msgspec

from quorate.kernel.ids import (
    NO_DIRECTORY,
    NO_NODE,
    BrokerEpoch,
    DirectoryId,
    GroupId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.metadata.core.quota_entities import QuotaEntity
from quorate.metadata.core.records import DEFAULT_LISTENER, NO_INCARNATION, BrokerEndpoint
from quorate.metadata.core.security_state import SecurityState

Key = TypeVar("Key")
REMEMBERED_TOPICS = 10_000
_NONE_YET = LeaderEpoch(-1)


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    #: Of this start of the process: requests that carry an earlier one are refused.
    broker_epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None = None
    #: Chosen by the process when it starts, so that a repeated registration is known as such.
    incarnation: UUID = NO_INCARNATION
    directory_id: DirectoryId = NO_DIRECTORY
    #: Its peer address, as host:port.
    peer_address: str = ""
    #: Of all listeners; empty for the default one alone.
    endpoints: tuple[BrokerEndpoint, ...] = ()
    #: Leads nothing and is in no in-sync set, save where it is the last member.
    fenced: bool = False
    in_controlled_shutdown: bool = False
    #: False while its disk is full: it takes no records, and leads only what no replica with room can.
    has_room: bool = True

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where clients that came by a listener of this name reach it; None where it has none of that name.

        Without a name it is the first one.
        """
        if not self.endpoints and listener in ("", DEFAULT_LISTENER):
            return BrokerEndpoint(listener=DEFAULT_LISTENER, host=self.host, port=self.port)
        return next((each for each in self.endpoints if listener in ("", each.listener)), None)

    @property
    def is_live(self) -> bool:
        return not self.fenced

    @property
    def is_active(self) -> bool:
        """Whether it may be given leaderships and may join in-sync sets."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_records(self) -> bool:
        return self.is_active and self.has_room


class PartitionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition. ``leader`` is NO_NODE while there is none: never a made-up node.

    While a reassignment is under way, ``replicas`` holds both the target and what is to go.
    """

    #: The preferred leader first.
    replicas: tuple[NodeId, ...]
    #: Never empty: the last member stays in it even when it is lost (a new leader comes from the last committed set).
    isr: tuple[NodeId, ...]
    leader: NodeId
    #: Grows with every change of leadership.
    leader_epoch: LeaderEpoch
    #: Grows with every change of any kind (KIP-497), so that a proposal made on an older state is known as such.
    partition_epoch: int = 0
    adding_replicas: tuple[NodeId, ...] = ()
    removing_replicas: tuple[NodeId, ...] = ()
    #: Nodes that had a replica once and have none now. Such a node may delete what it still has of the partition.
    former_replicas: tuple[NodeId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_NODE

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[NodeId, ...]:
        """The replicas once the reassignment under way is done; without one, the replicas."""
        return without(self.replicas, self.removing_replicas)


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    topic_id: TopicId
    partitions: Mapping[PartitionIndex, PartitionState]
    configs: Mapping[str, str]


class TopicIdPartition(msgspec.Struct, frozen=True, gc=False):
    """Names a partition for good: a topic that is deleted and made again has another id."""

    topic_id: TopicId
    topic: TopicName
    partition: PartitionIndex


class HostedPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that a node hosts, so that they are found without a look at other topics."""

    replicas: Mapping[TopicId, frozenset[PartitionIndex]] = MappingProxyType({})
    replica_count: int = 0
    leader_count: int = 0
    #: Partitions of which the node is the first replica.
    preferred_count: int = 0


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a replay, in the order in which a node has to carry them out."""

    deleted_topics: tuple[Topic, ...] = ()
    changed_partitions: tuple[TopicIdPartition, ...] = ()
    #: Those of the changed partitions whose leader or leader epoch is new.
    changed_leaders: tuple[TopicIdPartition, ...] = ()
    #: Those whose new leader was not in sync: records may have been lost.
    unclean_elections: tuple[TopicIdPartition, ...] = ()
    reconfigured_topics: tuple[TopicName, ...] = ()
    brokers_reconfigured: bool = False
    #: Registered, fenced, unfenced, shutting down, without room or with room again, or removed.
    changed_brokers: tuple[NodeId, ...] = ()


def without(nodes: tuple[NodeId, ...], removed: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """The nodes that are not among the removed, in their order."""
    return tuple(node for node in nodes if node not in removed) if removed else nodes


class Deletions(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of deleted topics, for as long as there is room.

    A log is deleted where a committed record says that its topic was, and never because the image does not know the
    topic: an image that lacks it may have been lost and started from nothing. A node that was down meanwhile learns it
    from here, since a snapshot has no history. And a topic that is created again begins above the leader epochs of its
    namesakes: clients ignore metadata with a lower one, and would write to the old leader for ever.

    The oldest are forgotten first. A node that was away for that long sets the log aside instead of deleting it; the
    epochs of forgotten names are a floor for every new topic.
    """

    #: The ids of deleted topics, oldest first. The values say nothing: it is a set that keeps its order.
    topic_ids: Mapping[TopicId, None] = MappingProxyType({})
    #: The highest leader epoch that a topic of the name had when it was deleted, by the time of its last deletion.
    leader_epochs: Mapping[TopicName, LeaderEpoch] = MappingProxyType({})
    #: The highest of those that were forgotten.
    forgotten_leader_epoch: LeaderEpoch = _NONE_YET

    def first_leader_epoch(self, name: TopicName) -> LeaderEpoch:
        """The first leader epoch of the partitions of a new topic of this name."""
        return LeaderEpoch(max(self.leader_epochs.get(name, _NONE_YET), self.forgotten_leader_epoch) + 1)

    def after(self, deleted: Sequence[Topic], room: int = REMEMBERED_TOPICS) -> "Deletions":
        """With these topics deleted too. None of them is forgotten at once: nodes still have to delete the logs."""
        topic_ids, leader_epochs = dict(self.topic_ids), dict(self.leader_epochs)
        forgotten, room = self.forgotten_leader_epoch, max(room, len(deleted))
        for topic in deleted:
            topic_ids[topic.topic_id] = None
            epochs = (state.leader_epoch for state in topic.partitions.values())
            leader_epochs[topic.name] = max(leader_epochs.pop(topic.name, _NONE_YET), max(epochs, default=_NONE_YET))
        for topic_id in _oldest(topic_ids, room):
            del topic_ids[topic_id]
        for name in _oldest(leader_epochs, room):
            forgotten = max(forgotten, leader_epochs.pop(name))
        return Deletions(topic_ids=topic_ids, leader_epochs=leader_epochs, forgotten_leader_epoch=forgotten)


def _oldest(table: Mapping[Key, object], room: int) -> list[Key]:
    return list(islice(table, max(0, len(table) - room)))


class ImageTables(msgspec.Struct, frozen=True, kw_only=True):
    """All that an image holds."""

    #: End offset of the metadata log that this image stands for; grows with every replay.
    version: Offset = Offset(0)
    cluster_id: str = ""
    brokers: Mapping[NodeId, Broker] = MappingProxyType({})
    #: The data folder of each broker that was unregistered and has not come back since.
    former_directories: Mapping[NodeId, DirectoryId] = MappingProxyType({})
    #: The newest broker epoch ever given, to a broker that may be gone by now: none is given twice.
    last_broker_epoch: BrokerEpoch = BrokerEpoch(0)
    topics: Mapping[TopicName, Topic] = MappingProxyType({})
    topic_names: Mapping[TopicId, TopicName] = MappingProxyType({})
    #: The topic that holds a collision key, for names that can collide at all.
    collision_keys: Mapping[str, TopicName] = MappingProxyType({})
    deletions: Deletions = Deletions()
    #: Nodes without any partition are not in it.
    hosted: Mapping[NodeId, HostedPartitions] = MappingProxyType({})
    #: Dynamic configs by node; the key None holds the cluster-wide defaults.
    broker_configs: Mapping[NodeId | None, Mapping[str, str]] = MappingProxyType({})
    #: Configs that consumer groups were given; a group need not exist to have some.
    group_configs: Mapping[GroupId, Mapping[str, str]] = MappingProxyType({})
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = MappingProxyType({})
    #: Who may do what, and what logins are checked against.
    security: SecurityState = SecurityState()
    next_producer_id: ProducerId = ProducerId(0)
