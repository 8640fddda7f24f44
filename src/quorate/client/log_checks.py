"""Questions about a leader's log that a Fetch answer leaves open: was it cut back, where does it start and end, and
how much of it is on the leader's own disk?"""

from collections.abc import Sequence

from quorate.client.cluster import Cluster
from quorate.client.errors import LogTruncated, OffsetOutOfRange
from quorate.client.fetch_cursor import FetchCursor, Routed
from quorate.client.offsets import Offsets
from quorate.client.routing import Route
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset, TopicPartition


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


def find_local_log_start(cluster: Cluster, partition: TopicPartition, route: Route) -> Offset | None:
    """Where the part of the log begins that is on the disk of the leader that ``route`` names (KIP-405).

    Asked after its answer: within one leader epoch this offset only goes up, so what lies at or above it now lay there
    when the answer was given. None where another leads by now, as each replica has deleted as much as it likes.
    """
    try:
        start = Offsets(cluster).earliest_local([partition])[partition].offset
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        start = Offset(0)  # It is older than tiered storage.
    now = cluster.route(partition)
    is_same_leader = isinstance(now, Route) and (now.node_id, now.leader_epoch) == (route.node_id, route.leader_epoch)
    return start if is_same_leader else None
