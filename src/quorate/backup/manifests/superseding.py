"""Sets aside the tail of a partition's copy that the cluster has truncated."""

import msgspec

from quorate.backup.manifests.manifest import Gap, PartitionEntry, SegmentEntry, SupersededTail
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset


def supersede(entry: PartitionEntry, from_offset: Offset, *, found_in_manifest: int) -> PartitionEntry:
    """The entry as it stands when nothing from ``from_offset`` on is what the log has any more."""
    if from_offset >= entry.end_offset:
        return entry
    tail = SupersededTail(
        start_offset=from_offset,
        end_offset=entry.end_offset,
        leader_epoch=entry.leader_epochs[-1].leader_epoch if entry.leader_epochs else NO_LEADER_EPOCH,
        found_in_manifest=found_in_manifest,
        segments=[segment for segment in entry.segments if segment.start_offset >= from_offset],
    )
    return msgspec.structs.replace(
        entry,
        start_offset=min(entry.start_offset, from_offset),
        end_offset=from_offset,
        segments=[_cut_segment(each, from_offset) for each in entry.segments if each.start_offset < from_offset],
        gaps=[_cut_gap(each, from_offset) for each in entry.gaps if each.start_offset < from_offset],
        superseded=[*entry.superseded, tail],
        leader_epochs=[epoch for epoch in entry.leader_epochs if epoch.start_offset < from_offset],
        aborted_transactions=[each for each in entry.aborted_transactions if each.first_offset < from_offset],
    )


def _cut_segment(segment: SegmentEntry, from_offset: Offset) -> SegmentEntry:
    if segment.live_end_offset <= from_offset:
        return segment
    return msgspec.structs.replace(segment, superseded_from_offset=from_offset)


def _cut_gap(gap: Gap, from_offset: Offset) -> Gap:
    return msgspec.structs.replace(gap, end_offset=min(gap.end_offset, from_offset))
