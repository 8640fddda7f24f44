"""From the configs in force for a topic to the settings of its partitions and their logs."""

from functools import cached_property
from typing import cast

import msgspec

from quorate.broker.recompression import CODECS
from quorate.kernel.ids import NO_PRODUCER_ID, ProducerId, TopicName
from quorate.metadata.effective_configs import BrokerView, broker_value, topic_values
from quorate.metadata.image import MetadataImage
from quorate.metadata.topic_configs import RESTORE_PRODUCER_ID
from quorate.records.attributes import Compression, TimestampType
from quorate.storage.config import CleanupPolicy, LogConfig

_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


class PartitionSettings(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    log: LogConfig
    #: What batches are stored with; None leaves them as their producer sent them.
    codec: Compression | None
    min_insync_replicas: int
    allows_unclean_elections: bool = False
    #: The only producer that may write, with batches that keep their offsets; none where anyone may.
    restore_producer_id: ProducerId = NO_PRODUCER_ID

    @cached_property
    def is_being_restored(self) -> bool:
        return self.restore_producer_id != NO_PRODUCER_ID

    @cached_property
    def takes_any_batch(self) -> bool:
        """Whether a sound batch is stored as its producer sent it, and no more is asked of it."""
        return self.codec is None and not self.log.compacts and not self.is_being_restored


def partition_settings(image: MetadataImage, view: BrokerView, topic: TopicName) -> PartitionSettings:
    values = topic_values(image, view, topic)

    def number(name: str) -> int:
        return cast(int, values[name])

    log = LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_index_bytes=number("segment.index.bytes"),
        index_interval_bytes=number("index.interval.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        max_message_bytes=number("max.message.bytes"),
        cleanup_policy=frozenset(cast(tuple[CleanupPolicy, ...], values["cleanup.policy"])),
        delete_retention_ms=number("delete.retention.ms"),
        min_cleanable_dirty_ratio=cast(float, values["min.cleanable.dirty.ratio"]),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        message_timestamp_type=_TIMESTAMP_TYPES[cast(str, values["message.timestamp.type"])],
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        producer_id_expiration_ms=cast(int, broker_value(image, view, "producer.id.expiration.ms")),
    )
    return PartitionSettings(
        log=log,
        codec=CODECS[cast(str, values["compression.type"])],
        min_insync_replicas=number("min.insync.replicas"),
        allows_unclean_elections=bool(values["unclean.leader.election.enable"]),
        restore_producer_id=ProducerId(number(RESTORE_PRODUCER_ID)),
    )
