"""How a leader brings its log to the others, and how far it is committed.

Answers only change what is known; ``flush`` sends all that is due at once, so that proposals made while the disk works
share one append.

A peer starts in PROBE: one append at a time until it is known where the logs agree. Then REPLICATE: appends follow each
other without waiting, up to a bound. SNAPSHOT: what the peer lacks is compacted, and nothing is sent until it has the
snapshot.
"""

import enum
from collections import deque
from collections.abc import Iterable

from quorate.kernel.ids import NodeId, Offset
from quorate.quorum.core.messages import AppendRejected, AppendRequest, Heartbeat, InstallSnapshot
from quorate.quorum.core.state import RaftState


class ProgressState(enum.Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    def __init__(self, next_offset: Offset, max_in_flight: int) -> None:
        self.state = ProgressState.PROBE
        # The logs agree up to here, durably. Moves back only where the peer says that damage took entries.
        self.match_end_offset = Offset(0)
        self.next_offset = next_offset  # Of the next append; never below match_end_offset.
        self.told_high_watermark = Offset(0)
        self.acknowledged_read_round = 0
        self.is_active = True  # Heard from since the last quorum check.
        # An append is due even if it is empty: to find out where the logs agree, or whether an append was lost.
        self.probe_due = True
        self._in_flight: deque[Offset] = deque()  # End offsets of unanswered appends.
        self._max_in_flight = max_in_flight
        self._snapshot_end_offset = Offset(0)
        self._snapshot_retry_at_ms = 0

    @property
    def can_stream(self) -> bool:
        return self.state is ProgressState.REPLICATE and len(self._in_flight) < self._max_in_flight

    def sent(self, end_offset: Offset) -> None:
        self.probe_due = False
        if self.state is ProgressState.REPLICATE and end_offset > self.next_offset:
            self._in_flight.append(end_offset)
            self.next_offset = end_offset

    def sent_snapshot(self, end_offset: Offset, retry_at_ms: int) -> None:
        self._enter(ProgressState.SNAPSHOT)
        self.probe_due = False
        self._snapshot_end_offset = end_offset
        self._snapshot_retry_at_ms = retry_at_ms

    def accepted(self, match_end_offset: Offset) -> None:
        """The peer's log agrees up to here; the answer may be an old one."""
        self.match_end_offset = max(self.match_end_offset, match_end_offset)
        if self.state is ProgressState.SNAPSHOT and self.match_end_offset < self._snapshot_end_offset:
            return
        if self.state is not ProgressState.REPLICATE:
            self._enter(ProgressState.REPLICATE)
            self.next_offset = self.match_end_offset
        self.next_offset = max(self.next_offset, self.match_end_offset)
        while self._in_flight and self._in_flight[0] <= match_end_offset:
            self._in_flight.popleft()

    def rejected(self, base_offset: Offset, agreeing_end_offset: Offset) -> None:
        """The peer's log does not reach or fit base_offset; it may agree up to the other offset."""
        if self.state is ProgressState.REPLICATE:
            if base_offset > self.match_end_offset:
                self.probe(self.match_end_offset)
        elif self.state is ProgressState.PROBE and base_offset == self.next_offset:
            self.probe(min(base_offset, agreeing_end_offset))

    def heartbeat_answered(self, log_end_offset: Offset, now_ms: int) -> None:
        """The peer is there, so whatever it has not answered may be lost: find out."""
        if self.state is ProgressState.SNAPSHOT:
            if now_ms >= self._snapshot_retry_at_ms:
                self.probe(self.match_end_offset)
        elif self.match_end_offset < log_end_offset or self.state is ProgressState.PROBE:
            self.probe_due = True

    def lose_connection(self) -> None:
        """What was in flight is lost; the next answer to a heartbeat says when to send again."""
        if self.state is ProgressState.SNAPSHOT:
            self._snapshot_retry_at_ms = 0
        else:
            self.probe(self.match_end_offset)
            self.probe_due = False

    def log_damaged(self, end_offset: Offset) -> None:
        """The peer had accepted more than it has now. That it is told again changes nothing."""
        if end_offset < self.match_end_offset:
            self.match_end_offset = self.told_high_watermark = Offset(0)
            self.probe(end_offset)

    def probe(self, next_offset: Offset) -> None:
        self._enter(ProgressState.PROBE)
        self.next_offset = max(self.match_end_offset, next_offset)
        self.probe_due = True

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self._in_flight.clear()


class Replication:
    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._peers: dict[NodeId, Progress] = {}
        self.follow_membership()

    def follow_membership(self) -> None:
        """Meet the new members. Who left stays until its removal is committed, so that it can learn of it."""
        for node_id in self._state.log.membership.node_ids:
            if node_id != self._state.node_id and node_id not in self._peers:
                log_end_offset = self._state.log.log_end_offset
                self._peers[node_id] = Progress(log_end_offset, self._state.config.max_appends_in_flight)

    def take_leave_of_removed(self) -> None:
        members = self._state.log.membership.node_ids
        for node_id in [node_id for node_id in self._peers if node_id not in members]:
            self._send_due(node_id, self._peers.pop(node_id))

    def peer(self, node_id: NodeId) -> Progress | None:
        return self._peers.get(node_id)

    def match_end_offsets(self) -> dict[NodeId, Offset]:
        """How far each peer is known to have the log."""
        return {node_id: progress.match_end_offset for node_id, progress in self._peers.items()}

    @property
    def has_peers(self) -> bool:
        return bool(self._peers)

    def rejected(self, progress: Progress, message: AppendRejected) -> None:
        agreeing = self._state.log.end_of_terms_up_to(message.diverging_term, message.diverging_end_offset)
        progress.rejected(message.base_offset, agreeing)

    def check_quorum(self) -> bool:
        """Whether a majority was heard since the last check."""
        heard = [node_id for node_id, progress in self._peers.items() if progress.is_active]
        for progress in self._peers.values():
            progress.is_active = False
        return self._state.log.membership.is_quorum([*heard, self._state.node_id])

    def committable_end_offset(self) -> Offset:
        """Up to where a majority has the log, if that may be committed.

        An entry of an earlier term is not committed by being on a majority (paper, section 5.4.2), only by an entry of
        this term after it.
        """
        log = self._state.log
        if log.high_watermark == log.log_end_offset:
            return log.high_watermark
        end_offset = Offset(
            self._quorum_minimum(
                {id_: peer.match_end_offset for id_, peer in self._peers.items()}, self._state.durable_end_offset
            )
        )
        if end_offset > log.high_watermark and log.term_before(end_offset) == self._state.term:
            return end_offset
        return log.high_watermark

    def acknowledged_read_round(self, current_round: int) -> int:
        """The latest round in which a majority knew no newer leader."""
        return self._quorum_minimum(
            {id_: peer.acknowledged_read_round for id_, peer in self._peers.items()}, current_round
        )

    def send_heartbeats(self, read_round: int) -> None:
        state = self._state
        for node_id, progress in self._peers.items():
            state.outbox.append(
                Heartbeat(
                    term=state.term,
                    sender=state.node_id,
                    receiver=node_id,
                    high_watermark=min(state.log.high_watermark, progress.match_end_offset),
                    read_round=read_round,
                )
            )

    def flush(self) -> None:
        for node_id, progress in self._peers.items():
            self._send_due(node_id, progress)

    def most_caught_up(self, node_ids: Iterable[NodeId]) -> NodeId | None:
        candidates = [node_id for node_id in node_ids if node_id in self._peers]
        return max(candidates, key=lambda id_: (self._peers[id_].match_end_offset, id_), default=None)

    def _send_due(self, node_id: NodeId, progress: Progress) -> None:
        log = self._state.log
        if progress.probe_due:
            self._send(node_id, progress)
        while progress.next_offset < log.log_end_offset and progress.can_stream:
            if not self._send(node_id, progress):
                return
        if progress.told_high_watermark < log.high_watermark and progress.can_stream:
            self._send(node_id, progress)

    def _send(self, node_id: NodeId, progress: Progress) -> bool:
        """Send what comes next; return whether the log still has it."""
        state = self._state
        previous_term = state.log.term_before(progress.next_offset)
        if previous_term is None:
            self._send_snapshot(node_id, progress)
            return False
        entries = state.log.read_up_to(progress.next_offset, state.config.max_entries_bytes_per_append)
        base_offset = progress.next_offset
        end_offset = Offset(base_offset + len(entries))
        progress.told_high_watermark = min(state.log.high_watermark, end_offset)
        state.outbox.append(
            AppendRequest(
                term=state.term,
                sender=state.node_id,
                receiver=node_id,
                base_offset=base_offset,
                previous_term=previous_term,
                high_watermark=state.log.high_watermark,
                entries=entries,
            )
        )
        progress.sent(end_offset)
        return True

    def _send_snapshot(self, node_id: NodeId, progress: Progress) -> None:
        state = self._state
        snapshot = state.log.snapshot
        assert snapshot is not None, "a log that does not start at 0 starts within a snapshot"
        state.outbox.append(InstallSnapshot(term=state.term, sender=state.node_id, receiver=node_id, snapshot=snapshot))
        progress.sent_snapshot(snapshot.meta.end_offset, state.now_ms + state.config.snapshot_retry_ms)

    def _quorum_minimum(self, of_peers: dict[NodeId, Offset] | dict[NodeId, int], own: int) -> int:
        """The largest number that a majority of the voters reaches."""
        membership = self._state.log.membership
        numbers = sorted(
            (own if voter == self._state.node_id else of_peers.get(voter, 0) for voter in membership.voters),
            reverse=True,
        )
        return numbers[membership.quorum_size - 1]
