"""Fetch requests for cursors, and which cursor each part of an answer belongs to. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from quorate.client.fetch_cursor import FetchCursor
from quorate.client.isolation import IsolationLevel
from quorate.client.routing import Route
from quorate.kernel.ids import NO_LEADER_EPOCH, NO_TOPIC_ID
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

#: From here on topics are named by their ids only.
TOPIC_ID_VERSION: Final = 13
#: From here on the broker compares what was fetched last with its log, and says where they part.
DIVERGING_EPOCH_VERSION: Final = 12
MAX_WAIT_MS: Final = 500
#: What a fetch of many partitions may bring at most, whatever each of them may.
MAX_INT32: Final = 2**31 - 1

Routed = tuple[FetchCursor, Route]


def version_ceiling(routed: Sequence[Routed]) -> int | None:
    has_all_ids = all(route.topic_id != NO_TOPIC_ID for _, route in routed)
    return None if has_all_ids else TOPIC_ID_VERSION - 1


def fetch_request(
    routed: Sequence[Routed], version: int, *, isolation: IsolationLevel, rack: str, max_bytes: int
) -> FetchRequest:
    topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
    for cursor, route in routed:
        topics.setdefault((cursor.name.topic, route.topic_id), []).append(
            FetchPartition(
                partition=cursor.name.partition,
                current_leader_epoch=route.leader_epoch,
                fetch_offset=cursor.next_offset,
                last_fetched_epoch=cursor.last_fetched_epoch if version >= DIVERGING_EPOCH_VERSION else NO_LEADER_EPOCH,
                partition_max_bytes=min(cursor.max_bytes, MAX_INT32),
            )
        )
    return FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=min(max(max_bytes, *(cursor.max_bytes for cursor, _ in routed)), MAX_INT32),
        isolation_level=isolation,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
        rack_id=rack,
    )


def match_answer(
    routed: Sequence[Routed], answer: FetchResponse, version: int
) -> Iterator[tuple[FetchCursor, Route, PartitionData]]:
    """Each part of the answer with the cursor that asked for it. What was left out will be asked for again."""
    by_id = version >= TOPIC_ID_VERSION
    asked: dict[tuple[UUID | str, int], Routed] = {
        (route.topic_id if by_id else cursor.name.topic, cursor.name.partition): (cursor, route)
        for cursor, route in routed
    }
    for topic in answer.responses:
        for part in topic.partitions:
            found = asked.get((topic.topic_id if by_id else topic.topic, part.partition_index))
            if found is not None:
                yield *found, part
