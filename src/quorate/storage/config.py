"""The settings of one partition log: a topic's configuration as far as storage acts on it.

Names and defaults are Apache Kafka's, with dots as underscores.
"""

from functools import cached_property
from typing import Literal

import msgspec

from quorate.records.batch import TimestampType

CleanupPolicy = Literal["delete", "compact"]

NO_LIMIT = -1
LONG_MAX = 2**63 - 1

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS  # NO_LIMIT: for ever.
    retention_bytes: int = NO_LIMIT
    max_message_bytes: int = 1_048_588
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({"delete"})
    delete_retention_ms: int = _DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    producer_id_expiration_ms: int = _DAY_MS

    @cached_property
    def max_segment_ms(self) -> int:
        """A record can be compacted only when its segment is closed, so the lag bounds the segment's age too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @cached_property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @cached_property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy
