"""A metadata image as bytes and back: the records that add up to it, without the history. Pure."""

from collections.abc import Iterator

import msgspec

from quorate.kernel.ids import BrokerEpoch, DirectoryId, NodeId, Offset
from quorate.metadata import records as r
from quorate.metadata.image import MetadataImage, TopicPartition
from quorate.metadata.partition_edits import partition_record


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: Offset
    #: Of a broker that may be gone, so that no record here tells it.
    last_broker_epoch: BrokerEpoch
    #: The same goes for these.
    former_directories: dict[NodeId, DirectoryId] = {}
    records: list[r.AnyRecord]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: MetadataImage) -> bytes:
    return _encoder.encode(
        _Snapshot(
            version=image.version,
            last_broker_epoch=image.last_broker_epoch,
            former_directories=dict(image.former_directories),
            records=list(_records(image)),
        )
    )


def decode_image(payload: bytes) -> MetadataImage:
    """An image equal to the one that was encoded, its indexes included."""
    snapshot = _decoder.decode(payload)
    base = MetadataImage(last_broker_epoch=snapshot.last_broker_epoch, former_directories=snapshot.former_directories)
    image, _ = base.replay(snapshot.records, snapshot.version)
    return image


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
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
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
    for topic in image.topics.values():
        yield r.TopicCreated(name=topic.name, topic_id=topic.topic_id)
        for index, state in topic.partitions.items():
            yield partition_record(TopicPartition(topic.topic_id, topic.name, index), state)
        for key, value in topic.configs.items():
            yield r.TopicConfigChanged(topic_id=topic.topic_id, key=key, value=value)
