"""A metadata image as bytes and back: the records that add up to it, without the history."""

from collections.abc import Iterator
from uuid import UUID

import msgspec

from quorate.kernel.ids import BrokerEpoch, DirectoryId, LeaderEpoch, NodeId, Offset, TopicId, TopicName
from quorate.metadata.core import records as r
from quorate.metadata.core.image import MetadataImage, TopicIdPartition
from quorate.metadata.core.image_draft import partition_record
from quorate.metadata.core.image_parts import Deletions


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: Offset
    #: Given to a broker that may have been removed, so that no record here has it.
    last_broker_epoch: BrokerEpoch
    #: Of removed brokers, which have no record here either.
    former_directories: dict[NodeId, DirectoryId] = {}
    deletions: "_Deletions | None" = None
    records: list[r.AnyRecord]


class _Deletions(msgspec.Struct, frozen=True, kw_only=True):
    """Lists, which keep their order, and ids in as few bytes as they need: there may be many."""

    topic_ids: list[bytes]
    leader_epochs: list[tuple[TopicName, LeaderEpoch]]
    forgotten_leader_epoch: LeaderEpoch


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: MetadataImage) -> bytes:
    return _encoder.encode(
        _Snapshot(
            version=image.version,
            last_broker_epoch=image.last_broker_epoch,
            former_directories=dict(image.former_directories),
            deletions=_encode_deletions(image.deletions),
            records=list(_records(image)),
        )
    )


def decode_image(payload: bytes) -> MetadataImage:
    """An image equal to the one that was encoded, its indexes included."""
    snapshot = _decoder.decode(payload)
    base = MetadataImage(
        last_broker_epoch=snapshot.last_broker_epoch,
        former_directories=snapshot.former_directories,
        deletions=_decode_deletions(snapshot.deletions),
    )
    image, _ = base.replay(snapshot.records, snapshot.version)
    return image


def _encode_deletions(deletions: Deletions) -> _Deletions:
    return _Deletions(
        topic_ids=[topic_id.bytes for topic_id in deletions.topic_ids],
        leader_epochs=list(deletions.leader_epochs.items()),
        forgotten_leader_epoch=deletions.forgotten_leader_epoch,
    )


def _decode_deletions(stored: _Deletions | None) -> Deletions:
    if stored is None:  # Of an earlier version.
        return Deletions()
    return Deletions(
        topic_ids=dict.fromkeys(TopicId(UUID(bytes=topic_id)) for topic_id in stored.topic_ids),
        leader_epochs=dict(stored.leader_epochs),
        forgotten_leader_epoch=stored.forgotten_leader_epoch,
    )


def _records(image: MetadataImage) -> Iterator[r.AnyRecord]:
    if image.cluster_id:
        yield r.ClusterFormed(cluster_id=image.cluster_id)
    if image.next_producer_id:
        yield r.ProducerIdsAllocated(next_producer_id=image.next_producer_id)
    for broker in image.brokers.values():
        yield r.BrokerRegistered(
            node_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            incarnation=broker.incarnation,
            directory_id=broker.directory_id,
            peer_address=broker.peer_address,
            endpoints=broker.endpoints,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            has_room=broker.has_room,
        )
    for node_id, configs in image.broker_configs.items():
        for key, value in configs.items():
            yield r.BrokerConfigChanged(node_id=node_id, key=key, value=value)
    for group_id, configs in image.group_configs.items():
        for key, value in configs.items():
            yield r.GroupConfigChanged(group_id=group_id, key=key, value=value)
    for entity, quotas in image.client_quotas.items():
        for key, rate in quotas.items():
            yield r.ClientQuotaChanged(entity=entity, key=key, value=rate)
    yield from image.security.records()
    for topic in image.topics.values():
        yield r.TopicCreated(name=topic.name, topic_id=topic.topic_id)
        for index, state in topic.partitions.items():
            record = partition_record(TopicIdPartition(topic.topic_id, topic.name, index), state)
            yield msgspec.structs.replace(record, former_replicas=state.former_replicas)
        for key, value in topic.configs.items():
            yield r.TopicConfigChanged(topic_id=topic.topic_id, key=key, value=value)
