"""Where a log has left the one that was copied: truncation, found by leader epoch (KIP-101, KIP-320). Pure."""

from quorate.backup.cluster_snapshot import PartitionSnapshot
from quorate.backup.manifest import PartitionEntry
from quorate.kernel.ids import Offset


def divergence_offset(entry: PartitionEntry, snapshot: PartitionSnapshot) -> Offset | None:
    """The first offset of which the copy no longer is what the log has; None where all of it still is.

    Without an answer about epochs only a log that became shorter shows it. The high watermark of a leader that was
    just elected may lag for a moment, so it is asked only then.
    """
    if snapshot.epoch_end is None or entry.last_leader_epoch is None:
        end = snapshot.high_watermark
    elif snapshot.epoch_end.leader_epoch < 0:
        return None
    else:
        end = _end_of_shared_history(entry, snapshot.epoch_end.leader_epoch, snapshot.epoch_end.end_offset)
    if end is None or end >= _end_of_batches(entry):
        return None
    return end


def _end_of_shared_history(entry: PartitionEntry, leader_epoch: int, end_offset: Offset) -> Offset:
    """An epoch above the one that the leader answered with was copied from a leader whose log was cut off."""
    lost = [epoch.start_offset for epoch in entry.leader_epochs if epoch.leader_epoch > leader_epoch]
    return min([end_offset, *lost])


def _end_of_batches(entry: PartitionEntry) -> int:
    """Offsets behind the last batch were empty: nothing of them can be lost."""
    if not entry.segments:
        return entry.start_offset
    last = entry.segments[-1]
    return min(last.last_offset + 1, last.live_end_offset) if last.superseded_from_offset else last.last_offset + 1
