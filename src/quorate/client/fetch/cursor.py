"""How far a range has been fetched, and what an answer means for it. Time arrives with each call.

A cursor takes one partition's part of a Fetch answer and says what it is: batches to hand out, a reason to try again,
or the end of the range, good or bad. It never sends anything itself.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from quorate.client.errors import LogEndsEarly, LogTruncated, PartitionUnavailable, TopicReplaced, error_code
from quorate.client.fetch.batches import AbortedProducer, FetchedBatches, FetchRange, IsolationLevel, needed_bytes
from quorate.client.fetch.regions import NO_OFFSET, RegionCut, cut_region
from quorate.client.retries import Retries, is_hopeless
from quorate.client.routing import Route
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NO_TOPIC_ID, LeaderEpoch, NodeId, Offset, ProducerId, TopicId
from quorate.protocol.messages.fetch import PartitionData
from quorate.records.errors import CorruptBatch

MAX_BATCH_BYTES: Final = 1 << 30
#: A follower learns of the high watermark from the answer to its next fetch, which its leader may hold for half a
#: second (``replica.fetch.wait.max.ms``). One that its leader names has the records, and may not know that yet.
REPLICA_PATIENCE_MS: Final = 2_000
#: A replica that could not help is not asked for so long; then the leader may name one again.
AVOID_REPLICAS_MS: Final = 30_000


class NextStep(Enum):
    """What the fetcher does with a partition whose answer held nothing to hand out."""

    #: Fetch again, at ``not_before_ms``.
    TRY_AGAIN = auto()
    #: The leader named a replica that is nearer: fetch from there.
    FOLLOW_REPLICA = auto()
    #: The replica that was asked cannot help: fetch from the leader.
    ASK_LEADER = auto()
    #: The offset is not in the log: find out what is, and tell the caller.
    LOOK_UP_BOUNDS = auto()
    #: The leader sent nothing, though the log goes on: find out where its local log starts, and ``take_emptiness``.
    LOOK_UP_LOCAL_START = auto()


class RetryCause(msgspec.Struct, frozen=True):
    """An answer that says to try again, for the router to learn from."""

    code: ErrorCode


class FetchCursor:
    def __init__(
        self,
        fetch_range: FetchRange,
        retries: Retries,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        include_batch_across_end: bool,
    ) -> None:
        self.range = fetch_range
        self.name = fetch_range.name
        self.next_offset = fetch_range.start_offset
        self.last_fetched_epoch = fetch_range.last_fetched_epoch
        self.retries = retries
        self.max_bytes = max_bytes
        self.is_finished = False
        #: Fetch without other partitions, so that an empty answer proves that there is nothing.
        self.wants_to_be_alone = False
        self._avoids_replicas_until_ms = 0
        #: The leader epoch in which what was read so far was found not to be cut off (brokers before Fetch 12).
        self.validated_epoch: LeaderEpoch | None = None
        self._topic_id: TopicId | None = fetch_range.topic_id
        self._isolation = isolation
        self._include_batch_across_end = include_batch_across_end
        self._tried: Route | None = None
        self._cause = "it was not tried"

    def avoids_replicas(self, now_ms: int) -> bool:
        """Whether replicas could not help: fetch from the leader, and do not let it name one."""
        return now_ms < self._avoids_replicas_until_ms

    def avoid_replicas(self, now_ms: int) -> None:
        self._avoids_replicas_until_ms = now_ms + AVOID_REPLICAS_MS

    def accept_route(self, route: Route) -> TopicReplaced | None:
        """Remember who is asked. Another topic of the same name is refused: its offsets mean something else."""
        self._tried = route
        if route.topic_id == NO_TOPIC_ID:
            return None
        if self._topic_id is None or self._topic_id == NO_TOPIC_ID:
            self._topic_id = route.topic_id
        if self._topic_id == route.topic_id:
            return None
        return TopicReplaced(self.name, self._topic_id, route.topic_id)

    def take(
        self, answer: PartitionData, route: Route, *, alone: bool, now_ms: int
    ) -> FetchedBatches | NextStep | RetryCause | QuorateError:
        """What an answer means. The checksums of the batches are still to be checked."""
        code = error_code(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return NextStep.LOOK_UP_BOUNDS if route.is_leader else NextStep.ASK_LEADER
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            # What brokers say whose remote storage fails, maybe for a moment. Java's consumer tries again, too.
            failed = self.failed(f"{code.name} at offset {self.next_offset}", now_ms)
            return failed or (NextStep.TRY_AGAIN if route.is_leader else NextStep.ASK_LEADER)
        if code is not ErrorCode.NONE:
            has_hint = answer.current_leader.leader_id >= 0
            return self.refused(code, code.name, now_ms, at_once=has_hint) or RetryCause(code)
        if answer.diverging_epoch.end_offset >= 0:
            return self._truncated(answer)
        try:
            return self._take_records(answer, route, alone=alone, now_ms=now_ms)
        except CorruptBatch as error:
            return self.corrupt(error)

    def take_emptiness(
        self, answer: PartitionData, route: Route, local_log_start: Offset | None, now_ms: int
    ) -> FetchedBatches | PartitionUnavailable | None:
        """What it means that the leader, asked alone, sent nothing; None to try again.

        Offsets below its local log are read from remote storage (KIP-405). Where that takes too long, or is throttled,
        the answer is empty and without an error. So only a leader that has the offset on its own disk is believed; one
        that does not say where its local log starts (None) is not.
        """
        if local_log_start is not None and self.next_offset >= local_log_start:
            self.is_finished = True
            self.next_offset = self.range.end_offset
            return self._piece(answer, route, memoryview(b""), 0)
        if local_log_start is None:
            return self.failed(f"nothing at offset {self.next_offset}, and not told whether it is tiered", now_ms)
        return self.failed(
            f"offset {self.next_offset} is in tiered storage (the leader's own log starts at {local_log_start}), "
            "from where nothing came",
            now_ms,
        )

    def failed(self, cause: str, now_ms: int, *, at_once: bool = False) -> PartitionUnavailable | None:
        """Plan another attempt; the one error where the deadline has passed."""
        self._cause = cause
        if self.retries.failed(now_ms, at_once=at_once):
            return None
        return self._unavailable(now_ms)

    def refused(self, code: ErrorCode, reason: str, now_ms: int, *, at_once: bool = False) -> QuorateError | None:
        """As ``failed``, for an error code: one that cannot get better is told at once."""
        if is_hopeless(code, self.retries.waited_ms(now_ms)):
            return KafkaError(code, f"cannot fetch partition {self.name} from {self._source()}: {reason}")
        return self.failed(reason, now_ms, at_once=at_once)

    def corrupt(self, error: CorruptBatch) -> CorruptBatch:
        return CorruptBatch(
            f"partition {self.name} from offset {self.next_offset}, as {self._source()} sent it: {error}"
        )

    def _take_records(
        self, answer: PartitionData, route: Route, *, alone: bool, now_ms: int
    ) -> FetchedBatches | NextStep | RetryCause | QuorateError:
        records = answer.records
        data = records if isinstance(records, memoryview) else memoryview(b"")
        cut = cut_region(
            data,
            self.next_offset,
            self.range.end_offset,
            include_batch_across_end=self._include_batch_across_end,
        )
        if cut is None:
            return self._take_nothing(answer, data, route, alone=alone, now_ms=now_ms)
        if cut.region_last_offset < self.next_offset:
            # The broker started before the offset, and the room ended before it.
            return self._ask_for_more(self.max_bytes * 2)
        self.retries.succeeded(now_ms)
        self.wants_to_be_alone = False
        self._advance(cut)
        return self._piece(answer, route, data[cut.start : cut.end], cut.batch_count)

    def _advance(self, cut: RegionCut) -> None:
        region_end = Offset(cut.region_last_offset + 1)
        self.is_finished = region_end >= self.range.end_offset
        if cut.batch_count:
            self.last_fetched_epoch = cut.leader_epoch
            self.next_offset = Offset(cut.last_offset + 1)
        if not self.is_finished:
            self.next_offset = max(self.next_offset, region_end)
            return
        # Nothing is between the last batch handed out and the end, but the start of a batch across it.
        end = self.range.end_offset
        if cut.outside_offset != NO_OFFSET:
            end = min(end, cut.outside_offset)
        self.next_offset = max(self.next_offset, end)

    def _take_nothing(
        self, answer: PartitionData, data: memoryview, route: Route, *, alone: bool, now_ms: int
    ) -> NextStep | QuorateError:
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica != route.node_id:
            return NextStep.FOLLOW_REPLICA
        if len(data):
            return self._ask_for_more(needed_bytes(data) or self.max_bytes * 2)
        readable_end = self._readable_end(answer)
        if readable_end >= self.range.end_offset:
            return self._find_out_what_is_left(route, alone=alone)
        if not route.is_leader:
            return self._replica_lags(readable_end, now_ms)
        # A new leader learns the high watermark a moment after its election.
        if self.failed(f"readable up to offset {readable_end} only", now_ms) is not None:
            return LogEndsEarly(self.name, self.next_offset, self.range.end_offset, readable_end)
        return NextStep.TRY_AGAIN

    def _replica_lags(self, readable_end: Offset, now_ms: int) -> NextStep:
        """Where the log ends, only the leader can say. The replica gets a moment to learn what may be read."""
        is_patient = self.retries.waited_ms(now_ms) < REPLICA_PATIENCE_MS
        if is_patient and self.failed(f"readable up to offset {readable_end} only", now_ms) is None:
            return NextStep.TRY_AGAIN
        return NextStep.ASK_LEADER

    def _find_out_what_is_left(self, route: Route, *, alone: bool) -> NextStep:
        """No bytes, though the log goes on: others took the room, remote storage did not answer, or compaction left
        nothing up to the end."""
        if alone and route.is_leader:
            return NextStep.LOOK_UP_LOCAL_START
        self.wants_to_be_alone = True
        return NextStep.TRY_AGAIN if route.is_leader else NextStep.ASK_LEADER

    def _ask_for_more(self, size_bytes: int) -> NextStep | CorruptBatch:
        """Not one whole batch of the range came: some brokers keep to the limit. Raise it."""
        if not self.max_bytes < size_bytes <= MAX_BATCH_BYTES:
            return self.corrupt(CorruptBatch(f"{self.max_bytes} bytes hold no whole batch"))
        self.max_bytes = size_bytes
        return NextStep.TRY_AGAIN

    def _truncated(self, answer: PartitionData) -> LogTruncated:
        return LogTruncated(
            self.name,
            self.next_offset,
            self.last_fetched_epoch,
            LeaderEpoch(answer.diverging_epoch.epoch),
            Offset(answer.diverging_epoch.end_offset),
        )

    def _piece(self, answer: PartitionData, route: Route, data: memoryview, batch_count: int) -> FetchedBatches:
        return FetchedBatches(
            range=self.range,
            data=data,
            batch_count=batch_count,
            next_offset=self.next_offset,
            high_watermark=Offset(answer.high_watermark),
            last_stable_offset=Offset(answer.last_stable_offset),
            log_start_offset=Offset(answer.log_start_offset),
            aborted_transactions=[
                AbortedProducer(ProducerId(aborted.producer_id), Offset(aborted.first_offset))
                for aborted in answer.aborted_transactions or ()
            ],
            node_id=NodeId(route.node_id),
            leader_epoch=route.leader_epoch,
            is_last=self.is_finished,
        )

    def _readable_end(self, answer: PartitionData) -> Offset:
        if self._isolation is IsolationLevel.READ_COMMITTED and answer.last_stable_offset >= 0:
            return Offset(answer.last_stable_offset)
        return Offset(answer.high_watermark)

    def _source(self) -> str:
        return "nobody" if self._tried is None else f"node {self._tried.node_id} at {self._tried.address}"

    def _unavailable(self, now_ms: int) -> PartitionUnavailable:
        tried = self._tried
        return PartitionUnavailable(
            self.name,
            tried.node_id if tried else None,
            tried.address if tried else None,
            self._cause,
            self.retries.waited_ms(now_ms),
        )


Routed = tuple[FetchCursor, Route]
"""A range, and where to fetch it from now."""
