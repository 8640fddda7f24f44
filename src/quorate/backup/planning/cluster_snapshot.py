"""What a run takes of a cluster: which topics are selected, and what is known of them when it begins.

Plain values that the planner works on.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    EpochEnd,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicName,
)


class TopicSelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic is selected that matches one of ``include`` and none of ``exclude``.

    Internal topics (offsets of groups, transactions) are selected only by their full name: a ``*`` does not mean them.
    """

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def selects(self, topic: str, *, is_internal: bool = False) -> bool:
        if any(fnmatchcase(topic, pattern) for pattern in self.exclude):
            return False
        if is_internal:
            return topic in self.include
        return any(fnmatchcase(topic, pattern) for pattern in self.include)

    def names_without_topic(self, topics: Iterable[str]) -> Sequence[str]:
        """Plain names among ``include`` that no topic has: a mistake to tell the user of."""
        existing = set(topics)
        return [name for name in self.include if not any(mark in name for mark in "*?[") and name not in existing]


class PartitionSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    partition: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    end_offset: Offset  # Last stable offset or high watermark, as the isolation level asks. The copy ends here.
    end_epoch: LeaderEpoch = NO_LEADER_EPOCH  # Of the leader that told the end; it may have followed ``leader``.
    high_watermark: Offset | None = None
    log_bytes: int | None = None  # On the leader's disk.
    local_log_start_offset: Offset = Offset(0)  # Where what is on its disk begins, if later than the log (KIP-405).
    epoch_end: EpochEnd | None = None  # For ``last_leader_epoch`` of the partition in the previous manifest.
    error: str | None = None  # Why the offsets could not be learnt; then they mean nothing.


class TopicSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    topic_id: TopicId
    is_internal: bool = False
    configs: dict[str, str] = {}
    partitions: tuple[PartitionSnapshot, ...] = ()
    error: str | None = None


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    captured_ms: int
    topics: tuple[TopicSnapshot, ...] = ()
