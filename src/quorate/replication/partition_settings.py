"""From the configs in force for a topic to the settings of its partitions and their logs."""

from functools import cached_property
from typing import cast

import msgspec

from quorate.kernel.ids import NO_PRODUCER_ID, ProducerId, TopicName
from quorate.metadata.core.effective_configs import BrokerView, broker_value, topic_values
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID
from quorate.records.batch import Compression, TimestampType
from quorate.records.validation import OpeningRules, opening_limit_bytes
from quorate.storage.config import LONG_MAX, CleanupPolicy, LogConfig

#: The values of ``compression.type``; None leaves a batch as it is.
_CODECS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}

#: What lies between two entries of an index is passed over on the loop, batch by batch, and an index is read whole.
_MAX_INDEX_INTERVAL_BYTES = 64 * 1024
_MAX_INDEX_BYTES = 10 * 1024 * 1024


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
        return not (self.codec is not None or self.log.compacts or self.is_being_restored or self._limits_age)

    def opening_rules(self, now_ms: int) -> OpeningRules:
        """What is asked of the records of a batch; of those of a restore only that they are not too old."""
        is_restored = self.is_being_restored
        return OpeningRules(
            requires_keys=self.log.compacts and not is_restored,
            earliest_timestamp=now_ms - self.log.message_timestamp_before_max_ms if self._limits_age else None,
            codec=None if is_restored else self.codec,
            limit_bytes=opening_limit_bytes(self.log.max_message_bytes),
        )

    @cached_property
    def _limits_age(self) -> bool:
        """A batch's header tells no lowest time, so topics with this limit pay for a look inside."""
        log = self.log
        return (
            log.message_timestamp_type is TimestampType.CREATE_TIME and log.message_timestamp_before_max_ms != LONG_MAX
        )


def partition_settings(image: MetadataImage, view: BrokerView, topic: TopicName) -> PartitionSettings:
    values = topic_values(image, view, topic)

    def number(name: str) -> int:
        return cast(int, values[name])

    log = LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_index_bytes=min(number("segment.index.bytes"), _MAX_INDEX_BYTES),
        index_interval_bytes=min(number("index.interval.bytes"), _MAX_INDEX_INTERVAL_BYTES),
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
        codec=_CODECS[cast(str, values["compression.type"])],
        min_insync_replicas=number("min.insync.replicas"),
        allows_unclean_elections=bool(values["unclean.leader.election.enable"]),
        restore_producer_id=ProducerId(number(RESTORE_PRODUCER_ID)),
    )
