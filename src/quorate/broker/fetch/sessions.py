"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes. Pure but for its own state.

A session remembers what each partition was last asked for and what the client was last told, so that an incremental
request may be empty and an incremental response holds only news.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

_NO_SESSION = 0
_INITIAL_EPOCH = 0
_FINAL_EPOCH = -1
_LARGEST_EPOCH = 2**31 - 1
#: A session that was used within this time is not given up for a new one.
_EVICTABLE_AFTER_MS = 120_000
#: Of all sessions together, about half a kilobyte each. Who finds no room fetches without a session, as where no slot
#: is free.
MOST_PARTITIONS = 65_536

TargetKey = tuple[str | UUID, int]


class FetchTarget(msgspec.Struct):
    """One partition of a fetch: what is asked, and what the client of a session knows already."""

    topic: str
    topic_id: UUID
    request: FetchPartition
    known_high_watermark: int = -1
    known_log_start_offset: int = -1

    def has_news(self, data: PartitionData) -> bool:
        """Whether the client learns anything from this answer; remembers it as told."""
        news = (
            bool(data.records)
            or data.error_code != 0
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
            or data.high_watermark != self.known_high_watermark
            or data.log_start_offset != self.known_log_start_offset
        )
        # After an error the client must hear of the partition again, whatever it is.
        self.known_high_watermark = data.high_watermark if data.error_code == 0 else -1
        self.known_log_start_offset = data.log_start_offset if data.error_code == 0 else -1
        return news


class FetchSession:
    def __init__(self, session_id: int, uses_topic_ids: bool, targets: dict[TargetKey, FetchTarget]) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.targets = targets
        self.next_epoch = 1
        self.last_used_ms = 0

    def update(self, request: FetchRequest) -> None:
        for key, target in _requested(request, self.uses_topic_ids):
            existing = self.targets.get(key)
            if existing is None:
                self.targets[key] = target
            else:
                existing.request = target.request
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if self.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                self.targets.pop((name, index), None)
        self.next_epoch = 1 if self.next_epoch == _LARGEST_EPOCH else self.next_epoch + 1

    def move_to_the_end(self, keys: Sequence[TargetKey]) -> None:
        """Partitions that just gave data go last, so that a small ``max_bytes`` starves none."""
        for key in keys:
            target = self.targets.pop(key, None)
            if target is not None:
                self.targets[key] = target


class RequestedFetch(msgspec.Struct, frozen=True, kw_only=True):
    """What a request fetches. ``session`` is None for one that stands alone."""

    targets: dict[TargetKey, FetchTarget]
    session: FetchSession | None
    is_incremental: bool


class FetchSessions:
    def __init__(self, *, slots: int, new_session_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_session_id = new_session_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # Least recently used first.
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> RequestedFetch:
        """What to fetch, by the request's session rules; KafkaError for an unknown session or a wrong epoch."""
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._end(request.session_id)
            targets = dict(_requested(request, uses_topic_ids))
            session = None
            if request.session_epoch == _INITIAL_EPOCH:
                session = self._open(uses_topic_ids, targets, now_ms)
            return RequestedFetch(targets=targets, session=session, is_incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._partition_count -= len(session.targets)
        session.update(request)
        self._partition_count += len(session.targets)
        if not session.targets or self._partition_count > MOST_PARTITIONS:
            # Nothing is left to fetch: as with Apache Kafka, that ends the session. So does too much of it.
            self._end(session.session_id)
            return RequestedFetch(targets=session.targets, session=None, is_incremental=False)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        # A copy: the session may change while this fetch waits for data.
        return RequestedFetch(targets=dict(session.targets), session=session, is_incremental=True)

    def _open(self, uses_topic_ids: bool, targets: dict[TargetKey, FetchTarget], now_ms: int) -> FetchSession | None:
        if not targets or not self._make_room(len(targets), now_ms):
            return None
        session_id = self._new_session_id()
        while session_id == _NO_SESSION or session_id in self._sessions:
            session_id = self._new_session_id()
        session = FetchSession(session_id, uses_topic_ids, dict(targets))
        session.last_used_ms = now_ms
        self._sessions[session_id] = session
        self._partition_count += len(targets)
        return session

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.targets)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while len(self._sessions) >= self._slots or self._partition_count + partitions > MOST_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < _EVICTABLE_AFTER_MS:
                return False
            self._end(oldest.session_id)
        return True


def _requested(request: FetchRequest, uses_topic_ids: bool) -> Iterator[tuple[TargetKey, FetchTarget]]:
    for topic in request.topics:
        name = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            target = FetchTarget(topic=topic.topic, topic_id=topic.topic_id, request=partition)
            yield (name, partition.partition), target
