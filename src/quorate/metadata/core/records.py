"""The metadata records: every fact that a cluster agrees on.

A record is a noun or a thing that happened; it is written to the metadata log, and replaying the log from its start
gives the image. Fields are only ever added, with defaults, so that an old log stays readable.
"""

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
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.metadata.core.quota_entities import QuotaEntity
from quorate.security.acls import Acl
from quorate.security.delegation_token import DelegationToken
from quorate.security.scram_credentials import ScramCredential, ScramMechanism

#: Of a broker that was registered without naming its start: two such registrations are never the same one.
NO_INCARNATION = UUID(int=0)
DEFAULT_LISTENER = "PLAINTEXT"


class MetadataRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", gc=False):
    """Gives metadata records the tag that names their kind in the log."""


class ClusterFormed(MetadataRecord, frozen=True, kw_only=True, tag="cluster-formed"):
    cluster_id: str


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where clients reach a broker by one of its listeners."""

    listener: str
    host: str
    port: int


class BrokerRegistered(MetadataRecord, frozen=True, kw_only=True, tag="broker-registered"):
    """A broker process has started. Each start has a new broker epoch: requests of an earlier one are refused."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None = None
    incarnation: UUID = NO_INCARNATION
    directory_id: DirectoryId = NO_DIRECTORY
    peer_address: str = ""
    #: Of all listeners. A broker that names none has one, ``DEFAULT_LISTENER``, at its host and port.
    endpoints: tuple[BrokerEndpoint, ...] = ()
    fenced: bool = False
    in_controlled_shutdown: bool = False
    has_room: bool = True


class BrokerFenced(MetadataRecord, frozen=True, kw_only=True, tag="broker-fenced"):
    """The broker counts as lost: it leads nothing until it is unfenced."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class BrokerUnfenced(MetadataRecord, frozen=True, kw_only=True, tag="broker-unfenced"):
    node_id: NodeId
    broker_epoch: BrokerEpoch


class BrokerShutdownStarted(MetadataRecord, frozen=True, kw_only=True, tag="broker-shutdown-started"):
    """The broker is about to stop: it gives its leaderships away and gets no new ones."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class BrokerRoomChanged(MetadataRecord, frozen=True, kw_only=True, tag="broker-room-changed"):
    """The broker's disk is full, or takes records again. While it is full, replicas with room lead and are in sync."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    has_room: bool


class BrokerUnregistered(MetadataRecord, frozen=True, kw_only=True, tag="broker-unregistered"):
    """The broker is no part of the cluster any more."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


class TopicCreated(MetadataRecord, frozen=True, kw_only=True, tag="topic-created"):
    name: TopicName
    topic_id: TopicId


class TopicDeleted(MetadataRecord, frozen=True, kw_only=True, tag="topic-deleted"):
    topic_id: TopicId


class PartitionChanged(MetadataRecord, frozen=True, kw_only=True, omit_defaults=True, tag="partition-changed"):
    """The whole new state of one partition; also how a partition comes to be."""

    topic_id: TopicId
    partition: PartitionIndex
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int = 0
    adding_replicas: tuple[NodeId, ...] = ()
    removing_replicas: tuple[NodeId, ...] = ()
    #: The leader was not in sync when it was elected: records may have been lost.
    unclean: bool = False
    #: Only in snapshots, which lack the records that would tell it. Otherwise it follows from the state before.
    former_replicas: tuple[NodeId, ...] = ()


class TopicConfigChanged(MetadataRecord, frozen=True, kw_only=True, tag="topic-config-changed"):
    """One config of one topic; a value of None takes the override away."""

    topic_id: TopicId
    key: str
    value: str | None


class BrokerConfigChanged(MetadataRecord, frozen=True, kw_only=True, tag="broker-config-changed"):
    """One dynamic broker config; without a node it is the default of the whole cluster."""

    node_id: NodeId | None
    key: str
    value: str | None


class GroupConfigChanged(MetadataRecord, frozen=True, kw_only=True, tag="group-config-changed"):
    """One config of one consumer group; a value of None takes it away."""

    group_id: GroupId
    key: str
    value: str | None


class ClientQuotaChanged(MetadataRecord, frozen=True, kw_only=True, tag="client-quota-changed"):
    """One quota of one entity; a value of None takes it away."""

    entity: QuotaEntity
    key: str
    value: float | None


class ProducerIdsAllocated(MetadataRecord, frozen=True, kw_only=True, tag="producer-ids-allocated"):
    """All producer ids below ``next_producer_id`` have been given to some broker and are never given again."""

    next_producer_id: ProducerId


class AclCreated(MetadataRecord, frozen=True, kw_only=True, tag="acl-created"):
    acl: Acl


class AclDeleted(MetadataRecord, frozen=True, kw_only=True, tag="acl-deleted"):
    acl: Acl


class ScramCredentialChanged(MetadataRecord, frozen=True, kw_only=True, tag="scram-credential-changed"):
    """The whole new credential of a user for a mechanism; None takes it away."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


class DelegationTokenChanged(MetadataRecord, frozen=True, kw_only=True, tag="delegation-token-changed"):
    """A new token, or the whole new state of one."""

    token: DelegationToken


class DelegationTokenRemoved(MetadataRecord, frozen=True, kw_only=True, tag="delegation-token-removed"):
    token_id: str


#: No record has a password or a token's secret. Credentials are what a login is checked against.
SecurityRecord = AclCreated | AclDeleted | ScramCredentialChanged | DelegationTokenChanged | DelegationTokenRemoved

AnyRecord = (
    ClusterFormed
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerShutdownStarted
    | BrokerRoomChanged
    | BrokerUnregistered
    | TopicCreated
    | TopicDeleted
    | PartitionChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | GroupConfigChanged
    | ClientQuotaChanged
    | ProducerIdsAllocated
    | SecurityRecord
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode_record(record: MetadataRecord) -> bytes:
    return _encoder.encode(record)


def decode_record(payload: bytes) -> AnyRecord:
    return _decoder.decode(payload)
