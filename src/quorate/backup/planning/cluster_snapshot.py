"""What a run knows of the cluster when it begins: plain values that the planner works on."""

import msgspec

from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName


class EpochEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's answer to "where does this leader epoch end?" (OffsetForLeaderEpoch).

    ``leader_epoch`` is the largest one it has that is not above the epoch asked for; -1 where it has none.
    """

    leader_epoch: LeaderEpoch
    end_offset: Offset


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
