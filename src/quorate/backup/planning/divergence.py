"""Where a log has left the one that was copied: truncation, found by leader epoch (KIP-101, KIP-320)."""

from quorate.backup.manifests.manifest import PartitionEntry
from quorate.backup.planning.cluster_snapshot import PartitionSnapshot
from quorate.kernel.ids import Offset


def divergence_offset(entry: PartitionEntry, snapshot: PartitionSnapshot) -> Offset | None:
    """The first offset of which the copy no longer is what the log has; None where all of it still is.

    A leader that gives no answer about epochs shows a truncation only by a log that became shorter. The high watermark
    of a leader that was just elected may lag for a moment, so it is asked only then.
    """
    epoch_end = snapshot.epoch_end
    if entry.last_leader_epoch is None or epoch_end is None or epoch_end.leader_epoch < 0:
        end = snapshot.high_watermark
    else:
        end = _end_of_shared_history(entry, epoch_end.leader_epoch, epoch_end.end_offset)
    if end is None or end >= entry.end_offset:
        return None
    return end


def _end_of_shared_history(entry: PartitionEntry, leader_epoch: int, end_offset: Offset) -> Offset:
    """An epoch above the one that the leader answered with was copied from a leader whose log was cut off."""
    lost = [epoch.start_offset for epoch in entry.leader_epochs if epoch.leader_epoch > leader_epoch]
    return min([end_offset, *lost])
