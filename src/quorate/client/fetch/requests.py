"""Fetch requests for positions in partitions, and which position each part of an answer belongs to."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeVar
from uuid import UUID

from quorate.client.fetch.batches import IsolationLevel
from quorate.client.routing import Route
from quorate.kernel.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicPartition
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

#: From here on topics are named by their ids only.
TOPIC_ID_VERSION: Final = 13
#: From here on the broker compares what was fetched last with its log, and says where they part.
DIVERGING_EPOCH_VERSION: Final = 12
MAX_WAIT_MS: Final = 500
#: What a fetch of many partitions may bring at most, whatever each of them may.
MAX_INT32: Final = 2**31 - 1


class Position(Protocol):
    """Where to go on in one partition."""

    @property
    def name(self) -> TopicPartition: ...
    @property
    def next_offset(self) -> Offset: ...
    @property
    def last_fetched_epoch(self) -> LeaderEpoch: ...
    @property
    def max_bytes(self) -> int: ...


P = TypeVar("P", bound=Position)


def version_ceiling(routed: Sequence[tuple[Position, Route]]) -> int | None:
    has_all_ids = all(route.topic_id != NO_TOPIC_ID for _, route in routed)
    return None if has_all_ids else TOPIC_ID_VERSION - 1


def fetch_request(
    routed: Sequence[tuple[Position, Route]],
    version: int,
    *,
    isolation: IsolationLevel,
    rack: str,
    max_bytes: int,
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
) -> FetchRequest:
    compares_epochs = version >= DIVERGING_EPOCH_VERSION
    topics: dict[tuple[str, UUID], list[FetchPartition]] = {}
    for position, route in routed:
        topics.setdefault((position.name.topic, route.topic_id), []).append(
            FetchPartition(
                partition=position.name.partition,
                current_leader_epoch=route.leader_epoch,
                fetch_offset=position.next_offset,
                last_fetched_epoch=position.last_fetched_epoch if compares_epochs else NO_LEADER_EPOCH,
                partition_max_bytes=min(position.max_bytes, MAX_INT32),
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=min(max(max_bytes, *(position.max_bytes for position, _ in routed)), MAX_INT32),
        isolation_level=isolation,
        topics=[
            FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
        rack_id=rack,
    )


def match_answer(
    routed: Sequence[tuple[P, Route]], answer: FetchResponse, version: int
) -> Iterator[tuple[P, Route, PartitionData]]:
    """Each part of the answer with the position that asked for it. What was left out will be asked for again."""
    by_id = version >= TOPIC_ID_VERSION
    asked: dict[tuple[UUID | str, int], tuple[P, Route]] = {
        (route.topic_id if by_id else position.name.topic, position.name.partition): (position, route)
        for position, route in routed
    }
    for topic in answer.responses:
        for part in topic.partitions:
            found = asked.get((topic.topic_id if by_id else topic.topic, part.partition_index))
            if found is not None:
                yield *found, part
