"""Ranges of offsets, fetched from all their leaders at once and handed out as raw batches.

One request is in flight to each leader. As soon as an answer's headers are read, the next request goes out; only then
are the checksums checked and the batches handed out, so that the broker works while the caller does. A range that fails
ends alone; the others go on.

The functions named ``find_`` answer what a Fetch answer leaves open about a leader's log: was it cut back, where does
it start and end, and how much of it is on the leader's own disk?
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.connections.connection import Connection, PendingResponse, first_ready
from quorate.client.errors import Disconnected, LogTruncated, OffsetOutOfRange, error_code
from quorate.client.fetch.batches import FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.fetch.cursor import FetchCursor, NextStep, RetryCause, Routed
from quorate.client.fetch.regions import check_region
from quorate.client.fetch.rounds import DIVERGING_EPOCH_VERSION, fetch_request, match_answer, version_ceiling
from quorate.client.offsets import Offsets
from quorate.client.routing import (
    PartitionRefused,
    ReadReplicaFailed,
    ReadReplicaPreferred,
    Route,
    Unroutable,
    refusal_event,
)
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NO_LEADER_EPOCH, NO_NODE, NodeId, Offset, TopicPartition
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from quorate.records.errors import CorruptBatch


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


DEFAULT_MAX_BYTES: Final = 4 * 1024 * 1024

Outcome = FetchedBatches | RangeFailed


class _Flight(msgspec.Struct):
    """One Fetch request that is on its way."""

    connection: Connection
    pending: PendingResponse[FetchResponse]
    routed: list[Routed]

    @property
    def node_id(self) -> NodeId:
        return self.routed[0][1].node_id


class RangeFetcher:
    def __init__(
        self,
        cluster: Cluster,
        ranges: Sequence[FetchRange],
        *,
        isolation: IsolationLevel,
        max_bytes: int,
        include_batch_across_end: bool,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._max_bytes = max_bytes
        # In the order in which they are asked for; whoever got bytes goes to the end, so that all get their turn.
        self._cursors = [
            FetchCursor(
                fetch_range,
                cluster.new_retries(),
                max_bytes=max_bytes,
                isolation=isolation,
                include_batch_across_end=include_batch_across_end,
            )
            for fetch_range in ranges
        ]
        self._flights: list[_Flight] = []

    def run(self) -> Iterator[Outcome]:
        self._cluster.want({cursor.name.topic for cursor in self._cursors})
        yield from self._finish_empty_ranges()
        try:
            while self._cursors:
                yield from self._send_what_is_ready()
                if not self._flights:
                    self._wait_for_next_attempt()
                    continue
                yield from self._take_one_answer()
        finally:
            for flight in self._flights:
                flight.connection.release(flight.pending)

    def _finish_empty_ranges(self) -> Iterator[Outcome]:
        for cursor in list(self._cursors):
            if cursor.next_offset >= cursor.range.end_offset:
                self._cursors.remove(cursor)
                yield _nothing(cursor.range)

    def _send_what_is_ready(self) -> list[Outcome]:
        """One request to each leader that has none and for which partitions wait."""
        self._cluster.refresh_if_due()
        failed: list[Outcome] = []
        busy = {id(cursor) for flight in self._flights for cursor, _ in flight.routed}
        groups: dict[tuple[Address, bool], list[Routed]] = {}
        now_ms = self._cluster.clock.now_ms()
        for cursor in list(self._cursors):
            if id(cursor) in busy or cursor.retries.not_before_ms > now_ms:
                continue
            routed = self._route(cursor, now_ms)
            if isinstance(routed, Route):
                group = groups.setdefault((routed.address, cursor.avoids_replicas(now_ms)), [])
                if _may_join(cursor, group):
                    group.append((cursor, routed))
            elif routed is not None:
                failed.append(routed)
        flying = {flight.connection.address for flight in self._flights}
        for (address, avoids_replicas), group in groups.items():
            if address not in flying:
                flying.add(address)
                failed += self._send(group, avoids_replicas=avoids_replicas)
        return failed

    def _route(self, cursor: FetchCursor, now_ms: int) -> Route | RangeFailed | None:
        """Where to fetch from; None to try later."""
        name = cursor.name
        route = self._cluster.route(name) if cursor.avoids_replicas(now_ms) else self._cluster.read_route(name)
        if isinstance(route, Unroutable):
            return self._refused(cursor, route.code, route.reason)
        replaced = cursor.accept_route(route)
        if replaced is not None:
            return self._fail(cursor, replaced)
        return route

    def _send(self, group: list[Routed], *, avoids_replicas: bool) -> list[Outcome]:
        node_id, address = group[0][1].node_id, group[0][1].address
        try:
            with self._cluster.noticing_loss(node_id):
                connection = self._cluster.connection_to(address)
                version = connection.versions.choose(FetchRequest, ceiling=version_ceiling(group))
                if version < DIVERGING_EPOCH_VERSION:
                    truncated = find_truncated(self._cluster, group)
                    if truncated:  # The others go out with the next round.
                        return [self._fail(cursor, error) for cursor, error in truncated]
                rack = self._cluster.config.rack if not avoids_replicas else None
                request = fetch_request(
                    group, version, isolation=self._isolation, rack=rack or "", max_bytes=self._max_bytes
                )
                pending = connection.send(request, FetchResponse, version, pooled=True)
        except (Disconnected, ProtocolError) as error:
            return self._all_failed(group, str(error))
        except QuorateError as error:
            return [self._fail(cursor, error) for cursor, _ in group]
        self._flights.append(_Flight(connection, pending, group))
        return []

    def _wait_for_next_attempt(self) -> None:
        if not self._cursors:
            return
        now_ms = self._cluster.clock.now_ms()
        next_ms = min(cursor.retries.not_before_ms for cursor in self._cursors)
        self._cluster.clock.sleep_ms(next_ms - now_ms)

    def _take_one_answer(self) -> Iterator[Outcome]:
        pairs = [(flight.connection, flight.pending) for flight in self._flights]
        ready = first_ready(pairs, self._cluster.clock, self._cluster.config.request_timeout_ms)
        flight = self._flights.pop(ready or 0)
        outcomes: list[Outcome] = []
        try:
            outcomes = self._read(flight, has_waited=ready is None)
            ahead = self._send_what_is_ready()
            for outcome in outcomes:
                yield self._checked(outcome)
            yield from ahead
        finally:
            _give_back(flight, outcomes)

    def _read(self, flight: _Flight, *, has_waited: bool) -> list[Outcome]:
        try:
            with self._cluster.noticing_loss(flight.node_id):
                answer = flight.connection.wait(flight.pending, has_waited=has_waited)
        except (Disconnected, ProtocolError) as error:
            return self._all_failed(flight.routed, str(error))
        except QuorateError as error:
            return [self._fail(cursor, error) for cursor, _ in flight.routed]
        if answer.error_code != ErrorCode.NONE:
            return self._all_failed(flight.routed, error_code(answer.error_code).name)
        outcomes: list[Outcome] = []
        for cursor, route, part in match_answer(flight.routed, answer, flight.pending.version):
            outcomes += self._take(cursor, route, part, answer, alone=len(flight.routed) == 1)
        return outcomes

    def _take(
        self, cursor: FetchCursor, route: Route, part: PartitionData, answer: FetchResponse, *, alone: bool
    ) -> list[Outcome]:
        now_ms = self._cluster.clock.now_ms()
        if cursor.is_finished:
            return []
        taken = cursor.take(part, route, alone=alone, now_ms=now_ms)
        match taken:
            case FetchedBatches():
                return self._hand_out(cursor, taken)
            case RetryCause(code):
                event = refusal_event(now_ms, cursor.name, code, part.current_leader, answer.node_endpoints)
                self._cluster.tell(event)
            case NextStep():
                return self._follow(cursor, taken, part, route)
            case _:
                return [self._fail(cursor, taken)]
        return []

    def _hand_out(self, cursor: FetchCursor, fetched: FetchedBatches) -> list[Outcome]:
        self._cursors.remove(cursor)
        if not cursor.is_finished:
            self._cursors.append(cursor)
        return [fetched] if fetched.batch_count or fetched.is_last else []

    def _follow(self, cursor: FetchCursor, step: NextStep, part: PartitionData, route: Route) -> list[Outcome]:
        now_ms = self._cluster.clock.now_ms()
        match step:
            case NextStep.FOLLOW_REPLICA:
                preferred = NodeId(part.preferred_read_replica)
                self._cluster.tell(ReadReplicaPreferred(now_ms, cursor.name, preferred))
                nearest = self._cluster.read_route(cursor.name)
                if isinstance(nearest, Unroutable) or nearest.is_leader:
                    # A replica that is not among the live brokers cannot be asked.
                    cursor.avoid_replicas(now_ms)
            case NextStep.ASK_LEADER:
                self._cluster.tell(ReadReplicaFailed(cursor.name))
                cursor.avoid_replicas(now_ms)
            case NextStep.LOOK_UP_BOUNDS:
                return self._out_of_range(cursor)
            case NextStep.LOOK_UP_LOCAL_START:
                return self._sent_nothing(cursor, part, route)
            case NextStep.TRY_AGAIN:
                pass
        return []

    def _out_of_range(self, cursor: FetchCursor) -> list[Outcome]:
        try:
            error: QuorateError | None = find_bounds(self._cluster, cursor)
        except QuorateError as failure:
            error = failure
        # Inside by now: a new leader whose high watermark lagged behind, or a log that changed in between.
        error = error or cursor.failed(f"no offset {cursor.next_offset}", self._cluster.clock.now_ms())
        return [] if error is None else [self._fail(cursor, error)]

    def _sent_nothing(self, cursor: FetchCursor, part: PartitionData, route: Route) -> list[Outcome]:
        try:
            local_log_start = find_local_log_start(self._cluster, cursor.name, route)
        except QuorateError as failure:
            return [self._fail(cursor, failure)]
        taken = cursor.take_emptiness(part, route, local_log_start, self._cluster.clock.now_ms())
        match taken:
            case FetchedBatches():
                return self._hand_out(cursor, taken)
            case None:
                return []
            case _:
                return [self._fail(cursor, taken)]

    def _checked(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, RangeFailed):
            return outcome
        try:
            check_region(outcome.data)
        except CorruptBatch as error:
            cursor = next((cursor for cursor in self._cursors if cursor.range is outcome.range), None)
            start = outcome.walk()[0].base_offset
            failure = CorruptBatch(f"partition {outcome.range.name}, sent by node {outcome.node_id}: {error}")
            if cursor is not None:
                self._fail(cursor, failure)
            return RangeFailed(range=outcome.range, next_offset=start, error=failure)
        return outcome

    def _all_failed(self, group: Sequence[Routed], cause: str) -> list[Outcome]:
        now_ms = self._cluster.clock.now_ms()
        outcomes: list[Outcome] = []
        for cursor, _ in group:
            if not cursor.is_finished:
                failed = cursor.failed(cause, now_ms)
                outcomes += [] if failed is None else [self._fail(cursor, failed)]
        return outcomes

    def _refused(self, cursor: FetchCursor, code: ErrorCode, reason: str) -> RangeFailed | None:
        now_ms = self._cluster.clock.now_ms()
        error = cursor.refused(code, reason, now_ms)
        if error is not None:
            return self._fail(cursor, error)
        self._cluster.tell(PartitionRefused(now_ms, cursor.name, code))
        return None

    def _fail(self, cursor: FetchCursor, error: QuorateError) -> RangeFailed:
        cursor.is_finished = True
        with suppress(ValueError):
            self._cursors.remove(cursor)
        return RangeFailed(range=cursor.range, next_offset=cursor.next_offset, error=error)


def _may_join(cursor: FetchCursor, group: Sequence[Routed]) -> bool:
    """Whether it can go into the same request. A partition, of which there may be two ranges, goes in once."""
    if group and (cursor.wants_to_be_alone or group[0][0].wants_to_be_alone):
        return False
    return all(other.name != cursor.name for other, _ in group)


def _nothing(fetch_range: FetchRange) -> FetchedBatches:
    return FetchedBatches(
        range=fetch_range,
        data=memoryview(b""),
        batch_count=0,
        next_offset=fetch_range.end_offset,
        high_watermark=Offset(-1),
        last_stable_offset=Offset(-1),
        log_start_offset=Offset(-1),
        aborted_transactions=[],
        node_id=NO_NODE,
        leader_epoch=NO_LEADER_EPOCH,
        is_last=True,
    )


def _give_back(flight: _Flight, outcomes: Sequence[Outcome]) -> None:
    """Use the memory again, unless somebody still holds on to it."""
    try:
        for outcome in outcomes:
            if isinstance(outcome, FetchedBatches):
                outcome.data.release()
    except BufferError:
        return
    flight.connection.release(flight.pending)
