"""Questions about a leader's log that a Fetch answer leaves open: was it cut back, and where does it start and end?"""

from collections.abc import Sequence

from quorate.client.cluster import Cluster
from quorate.client.errors import LogTruncated, OffsetOutOfRange
from quorate.client.fetch_cursor import FetchCursor, Routed
from quorate.client.offsets import Offsets
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset


def find_truncated(cluster: Cluster, group: Sequence[Routed]) -> list[tuple[FetchCursor, LogTruncated]]:
    """For brokers before Fetch 12, which do not compare epochs themselves: ask where the last one read ends (KIP-320).

    Asked once for each leader epoch: within one, nothing is cut off.
    """
    unknown = [
        (cursor, route)
        for cursor, route in group
        if cursor.last_fetched_epoch != NO_LEADER_EPOCH and cursor.validated_epoch != route.leader_epoch
    ]
    if not unknown:
        return []
    ends = Offsets(cluster).epoch_ends({cursor.name: cursor.last_fetched_epoch for cursor, _ in unknown})
    truncated = []
    for cursor, route in unknown:
        end = ends[cursor.name]
        cursor.validated_epoch = route.leader_epoch
        ends_before = 0 <= end.end_offset < cursor.next_offset
        if ends_before or NO_LEADER_EPOCH != end.leader_epoch < cursor.last_fetched_epoch:
            error = LogTruncated(
                cursor.name, cursor.next_offset, cursor.last_fetched_epoch, end.leader_epoch, end.end_offset
            )
            truncated.append((cursor, error))
    return truncated


def find_bounds(cluster: Cluster, cursor: FetchCursor) -> OffsetOutOfRange | None:
    """Where the log starts and ends; None where the offset is inside by now."""
    offsets = Offsets(cluster)
    start = offsets.earliest([cursor.name])[cursor.name].offset or Offset(0)
    end = offsets.latest([cursor.name])[cursor.name].offset or Offset(0)
    if start <= cursor.next_offset <= end:
        return None
    return OffsetOutOfRange(cursor.name, cursor.next_offset, start, end)
