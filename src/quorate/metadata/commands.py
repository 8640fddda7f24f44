"""What a node may ask of the controller. Pure."""

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from quorate.kernel.ids import NodeId, PartitionIndex, TopicId, TopicName


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The one way in which partitions come to be, whoever asks: an admin client, auto-creation or the node itself.

    Counts of -1 take the cluster's defaults; ``assignments`` names replicas by hand instead of counts.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Mapping[PartitionIndex, tuple[NodeId, ...]] | None = None
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    #: An internal topic takes as many replicas as there are brokers when there are fewer than asked.
    replication_factor_is_upper_bound: bool = False


class DeleteTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: TopicId


class CreatePartitions(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    total_count: int
    assignments: tuple[tuple[NodeId, ...], ...] | None = None


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


class AlterTopicConfigs(msgspec.Struct, frozen=True, kw_only=True):
    """With ``replace_all``, overrides that no change names are taken away, as the older AlterConfigs has it."""

    name: TopicName
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


class AlterBrokerConfigs(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId | None
    changes: tuple[ConfigChange, ...]
    replace_all: bool = False


class AllocateProducerIds(msgspec.Struct, frozen=True, kw_only=True):
    """Answered with the first id of a block that is this broker's alone."""

    count: int = 1000


class RegisterBroker(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class FormCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Give a new cluster its id."""


Command = (
    FormCluster
    | CreateTopic
    | DeleteTopic
    | CreatePartitions
    | AlterTopicConfigs
    | AlterBrokerConfigs
    | AllocateProducerIds
    | RegisterBroker
)
