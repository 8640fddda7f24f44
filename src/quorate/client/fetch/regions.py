"""Which bytes of a fetched region belong to a range of offsets, and whether they are sound. Pure.

Both are asked of every region, so the walks over the batches are native where they can be. The twins know all formats,
and find the words for damage: they are asked where native code finds anything but sound batches of magic 2.
"""

from typing import Final, NamedTuple

from quorate.client.fetch.batches import check_batches, cut_to_range, walk_batches
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from quorate.kernel.native import native

NO_OFFSET: Final = Offset(-1)


class RegionCut(NamedTuple):
    """The batches that belong to a range: neighbours, as offsets only grow."""

    start: int  # Their bytes.
    end: int
    batch_count: int
    #: Of the last of them, as the epoch is; -1 where there is none.
    last_offset: Offset
    leader_epoch: LeaderEpoch
    #: Of the last whole batch of the region, whether it belongs to the range or not.
    region_last_offset: Offset
    #: The lowest at which a batch behind them begins; ``NO_OFFSET`` where none does.
    outside_offset: Offset


def cut_region(
    data: memoryview, start_offset: Offset, end_offset: Offset, *, include_batch_across_end: bool
) -> RegionCut | None:
    """What of the region belongs to the range; None where not one whole batch is there. No CRC is looked at.

    Raises ``CorruptBatch`` where something stands there that is no batch.
    """
    if native is not None:
        cut = native.cut_region(data, start_offset, end_offset, include_batch_across_end)
        if cut is not None:
            return tuple.__new__(RegionCut, cut)
    return cut_walked(data, start_offset, end_offset, include_batch_across_end=include_batch_across_end)


def cut_walked(
    data: memoryview, start_offset: Offset, end_offset: Offset, *, include_batch_across_end: bool
) -> RegionCut | None:
    """The twin of ``cut_region``."""
    batches = walk_batches(data)
    if not batches:
        return None
    inside = cut_to_range(batches, start_offset, end_offset, include_batch_across_end=include_batch_across_end)
    last = inside[-1] if inside else None
    next_offset = start_offset if last is None else last.last_offset + 1
    return RegionCut(
        start=inside[0].position if inside else 0,
        end=last.position + last.size_bytes if last else 0,
        batch_count=len(inside),
        last_offset=last.last_offset if last else NO_OFFSET,
        leader_epoch=last.header.partition_leader_epoch if last and last.header else NO_LEADER_EPOCH,
        region_last_offset=batches[-1].last_offset,
        outside_offset=min(
            (batch.base_offset for batch in batches if batch.base_offset >= next_offset), default=NO_OFFSET
        ),
    )


def check_region(data: memoryview) -> None:
    """Raise ``CorruptBatch`` at the first batch whose checksum is wrong. The region is whole batches."""
    if native is None or not native.check_region(data):
        check_batches(data, walk_batches(data))
