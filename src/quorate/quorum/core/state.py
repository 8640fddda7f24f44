"""What a node of the quorum is whatever its role: term, vote, log, and what it has to say."""

from collections.abc import Callable

from quorate.kernel.ids import NodeId, Offset, QuorumLeader, Term
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Entry, HardState, InvariantBroken, LogPosition, Snapshot
from quorate.quorum.core.log import RaftLog
from quorate.quorum.core.messages import Message
from quorate.quorum.core.outcomes import (
    Outcome,
    ProposalAccepted,
    ProposalCommitted,
    ProposalLost,
    ProposalUncertain,
    Refusal,
    Refused,
)

Jitter = Callable[[], float]  # Gives numbers of [0, 1).


class RaftState:
    def __init__(
        self,
        *,
        node_id: NodeId,
        config: RaftConfig,
        jitter: Jitter,
        hard_state: HardState,
        log: RaftLog,
        now_ms: int,
        lost_log: LogPosition | None = None,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.log = log
        self.now_ms = now_ms  # Never moves back.
        self.term = hard_state.term  # Never moves back.
        self.voted_for = hard_state.voted_for  # Set at most once in a term.
        self.leader: NodeId | None = None  # Of this term, as far as this node has heard.
        self.lease_end_ms = now_ms  # Until then a follower that knows a leader elects no other one.
        self.outbox: list[Message] = []
        self.finished: list[Outcome] = []
        self.proposals = ProposalTickets(self.finished)
        # Everything before is on the disk in its present form; only a leader's own count asks for it.
        self.durable_end_offset = log.log_end_offset
        self.applied_end_offset = log.high_watermark
        self.snapshot_to_install: Snapshot | None = None
        # How far the log once went of which damage took a part. Until it is as far again, others count on entries that
        # this node no longer has: it helps to elect nobody, and it does not ask to be elected.
        self.lost_log = lost_log
        self._jitter = jitter

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.log.membership.voters

    @property
    def is_recovering(self) -> bool:
        return self.lost_log is not None

    @property
    def has_live_leader(self) -> bool:
        """Whether an election now could only disturb a leader that works (thesis, section 6.4)."""
        return self.leader is not None and (self.leader == self.node_id or self.now_ms < self.lease_end_ms)

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.voted_for)

    @property
    def quorum_leader(self) -> QuorumLeader | None:
        return None if self.leader is None else QuorumLeader(self.leader, self.term)

    def time_between(self, min_ms: int, max_ms: int) -> int:
        return self.now_ms + min_ms + int(self._jitter() * (max_ms - min_ms))

    def election_deadline(self) -> int:
        return self.time_between(self.config.election_timeout_min_ms, self.config.election_timeout_max_ms)

    def move_to_term(self, term: Term) -> None:
        if term < self.term:
            raise InvariantBroken(f"the term would move back from {self.term} to {term}")
        if term > self.term:
            self.term, self.voted_for, self.leader = term, None, None

    def vote_for(self, candidate: NodeId) -> None:
        if self.voted_for not in (None, candidate):
            raise InvariantBroken(f"a second vote in term {self.term}: {self.voted_for}, then {candidate}")
        self.voted_for = candidate

    def refuse(self, ticket: int, reason: Refusal) -> None:
        self.finished.append(Refused(ticket, reason, self.quorum_leader))

    def merge(self, entries: tuple[Entry, ...]) -> None:
        truncated_at = self.log.merge(entries)
        if truncated_at is not None:
            self.proposals.truncated(truncated_at)
        self.end_recovery_when_complete()

    def commit(self, end_offset: Offset) -> None:
        self.log.advance_high_watermark(end_offset)
        self.proposals.committed(end_offset)

    def install(self, snapshot: Snapshot) -> None:
        self.log.restore(snapshot)
        self.proposals.replaced_by_snapshot()
        self.snapshot_to_install = snapshot
        self.end_recovery_when_complete()

    def end_recovery_when_complete(self) -> None:
        """A log that is at least as far as the lost one has all of it that is committed, or can still be."""
        if self.lost_log is not None and self.log.end >= self.lost_log:
            self.lost_log = None


class ProposalTickets:
    def __init__(self, finished: list[Outcome]) -> None:
        self._finished = finished
        self._waiting: dict[Offset, int] = {}  # Offsets grow.

    def accepted(self, ticket: int, offset: Offset, term: Term) -> None:
        self._waiting[offset] = ticket
        self._finished.append(ProposalAccepted(ticket, offset, term))

    def committed(self, end_offset: Offset) -> None:
        for offset in [offset for offset in self._waiting if offset < end_offset]:
            self._finished.append(ProposalCommitted(self._waiting.pop(offset), offset))

    def truncated(self, end_offset: Offset) -> None:
        for offset in [offset for offset in self._waiting if offset >= end_offset]:
            self._finished.append(ProposalLost(self._waiting.pop(offset)))

    def replaced_by_snapshot(self) -> None:
        self._finished.extend(ProposalUncertain(ticket) for ticket in self._waiting.values())
        self._waiting.clear()
