"""A node that leads: takes proposals and reads, replicates, and steps down when a majority is silent.

Linearizable reads need no lease: the leader proves, by a round of heartbeats, that it led when it was asked. Reads that
arrive between two flushes share a round. Until the leader has committed an entry of its own term it does not know what
is committed, and reads wait (thesis, section 6.4).
"""

from collections import deque

import msgspec

from quorate.kernel.ids import NodeId, Offset
from quorate.quorum.core.entries import EntryKind, InvariantBroken
from quorate.quorum.core.events import Propose, ProposeMembership, TransferLeadership
from quorate.quorum.core.membership import (
    ChangeRefusal,
    MembershipChange,
    PromoteLearner,
    changed_membership,
    encode_membership,
)
from quorate.quorum.core.messages import (
    AppendAccepted,
    AppendRejected,
    FromLeader,
    HeartbeatResponse,
    Message,
    TimeoutNow,
)
from quorate.quorum.core.outcomes import Outcome, ReadReady, Refusal, Refused, TransferFinished
from quorate.quorum.core.replication import Replication
from quorate.quorum.core.roles import Follow, Transition
from quorate.quorum.core.state import RaftState


class Leader:
    def __init__(self, state: RaftState) -> None:
        self._state = state
        state.leader = state.node_id
        self._replication = Replication(state)
        self._reads = ReadRounds()
        self._transfer: Transfer | None = None
        self._heartbeat_at_ms = state.now_ms + state.config.heartbeat_interval_ms
        self._quorum_check_at_ms = state.now_ms + state.config.quorum_check_interval_ms
        self._first_offset = state.log.append(state.term, EntryKind.NO_OP, b"").offset

    @property
    def deadline_ms(self) -> int | None:
        deadlines = [self._transfer.deadline_ms] if self._transfer else []
        if self._replication.has_peers:
            deadlines += [self._heartbeat_at_ms, self._quorum_check_at_ms]
        return min(deadlines, default=None)

    @property
    def can_decide(self) -> bool:
        return self._state.applied_end_offset > self._first_offset

    @property
    def read_round(self) -> int:
        """The last round of heartbeats that followers were asked to confirm."""
        return self._reads.current_round

    def match_end_offsets(self) -> dict[NodeId, Offset]:
        """How far each peer is known to have the log."""
        return self._replication.match_end_offsets()

    def wake(self) -> Transition:
        state = self._state
        if self._transfer is not None and state.now_ms >= self._transfer.deadline_ms:
            self._end_transfer(stepped_down=False)
        if state.now_ms >= self._quorum_check_at_ms:
            self._quorum_check_at_ms = state.now_ms + state.config.quorum_check_interval_ms
            if not self._replication.check_quorum():
                return Follow(state.term, None)
        if state.now_ms >= self._heartbeat_at_ms:
            self._send_heartbeats()
        return None

    def receive(self, message: Message) -> Transition:
        if isinstance(message, FromLeader):
            raise InvariantBroken(f"nodes {self._state.node_id} and {message.sender} both lead term {message.term}")
        progress = self._replication.peer(message.sender)
        if progress is None:
            return None
        progress.is_active = True
        match message:
            case AppendAccepted():
                progress.accepted(message.match_end_offset)
                return self.advance_high_watermark()
            case AppendRejected():
                if message.is_recovering:
                    progress.log_damaged(message.diverging_end_offset)
                self._replication.rejected(progress, message)
            case HeartbeatResponse():
                if message.recovered_end_offset is not None:
                    progress.log_damaged(message.recovered_end_offset)
                progress.heartbeat_answered(self._state.log.log_end_offset, self._state.now_ms)
                progress.acknowledged_read_round = max(progress.acknowledged_read_round, message.read_round)
                self._confirm_reads()
            case _:
                pass  # Votes that came after the election was won.
        return None

    def propose(self, event: Propose) -> None:
        refusal = self._proposal_refusal()
        if refusal is None and event.term not in (None, self._state.term):
            refusal = Refusal.STALE_TERM
        if refusal is not None:
            self._state.refuse(event.ticket, refusal)
            return
        entry = self._state.log.append(self._state.term, EntryKind.COMMAND, event.payload)
        self._state.proposals.accepted(event.ticket, entry.offset, entry.term)

    def propose_membership(self, event: ProposeMembership) -> None:
        state = self._state
        refusal = self._proposal_refusal() or self._change_refusal(event.change)
        if refusal is not None:
            state.refuse(event.ticket, refusal)
            return
        membership = changed_membership(state.log.membership, event.change)
        if isinstance(membership, ChangeRefusal):
            state.finished.append(Refused(event.ticket, membership, state.quorum_leader))
            return
        entry = state.log.append(state.term, EntryKind.MEMBERSHIP, encode_membership(membership))
        state.proposals.accepted(event.ticket, entry.offset, entry.term)
        self._replication.follow_membership()

    def read_index(self, ticket: int) -> None:
        self._reads.add(ticket)

    def transfer_leadership(self, event: TransferLeadership) -> None:
        state = self._state
        if event.target == state.node_id or event.target not in state.log.membership.voters:
            state.refuse(event.ticket, Refusal.NOT_A_VOTER)
            return
        self._end_transfer(stepped_down=False)
        deadline_ms = state.now_ms + state.config.transfer_timeout_ms
        self._transfer = Transfer(target=event.target, ticket=event.ticket, deadline_ms=deadline_ms)

    def lose_connection(self, peer: NodeId) -> None:
        """What was in flight is lost. Whether the peer comes back is not for this to say."""
        if self._transfer is not None and self._transfer.target == peer:
            self._end_transfer(stepped_down=False)
        progress = self._replication.peer(peer)
        if progress is not None:
            progress.lose_connection()

    def advance_high_watermark(self) -> Transition:
        """Commit what a majority has. The single voter of a quorum is its own majority, once its disk is done."""
        state = self._state
        end_offset = self._replication.committable_end_offset()
        if end_offset == state.log.high_watermark:
            return None
        state.commit(end_offset)
        if state.log.has_uncommitted_membership:
            return None
        if not state.is_voter:
            return self._leave()
        self._replication.take_leave_of_removed()
        return None

    def flush(self) -> None:
        """Send what is due. Called once before a Ready is made."""
        if self._has_committed_in_term and self._reads.start_round(self._state.log.high_watermark):
            self._send_heartbeats()
            self._confirm_reads()
        self._replication.flush()
        self._hand_over_when_caught_up()

    def resign(self) -> None:
        self._end_transfer(stepped_down=True)
        for ticket in self._reads.abandon():
            self._state.finished.append(Refused(ticket, Refusal.NOT_LEADER, None))

    @property
    def _has_committed_in_term(self) -> bool:
        return self._state.log.high_watermark > self._first_offset

    def _proposal_refusal(self) -> Refusal | None:
        if not self.can_decide:
            return Refusal.LEADER_NOT_READY
        if self._transfer is not None:
            return Refusal.TRANSFERRING
        uncommitted = self._state.log.log_end_offset - self._state.log.high_watermark
        if uncommitted >= self._state.config.max_uncommitted_entries:
            return Refusal.TOO_MANY_UNCOMMITTED
        return None

    def _change_refusal(self, change: MembershipChange) -> Refusal | None:
        if self._state.log.has_uncommitted_membership:
            return Refusal.CHANGE_IN_PROGRESS
        progress = self._replication.peer(change.node_id)
        if isinstance(change, PromoteLearner) and progress is not None:
            lag = self._state.log.log_end_offset - progress.match_end_offset
            if not progress.is_active or lag > self._state.config.max_promotion_lag_entries:
                return Refusal.LEARNER_NOT_CAUGHT_UP
        return None

    def _send_heartbeats(self) -> None:
        self._heartbeat_at_ms = self._state.now_ms + self._state.config.heartbeat_interval_ms
        self._replication.send_heartbeats(self._reads.current_round)

    def _confirm_reads(self) -> None:
        if not self._reads.has_asked:
            return
        acknowledged_round = self._replication.acknowledged_read_round(self._reads.current_round)
        self._state.finished.extend(self._reads.confirm(acknowledged_round))

    def _leave(self) -> Transition:
        """This node's own removal is committed: tell the others, and let the best of them take over at once."""
        self._replication.flush()
        successor = self._replication.most_caught_up(self._state.log.membership.voters)
        if successor is not None:
            self._send_timeout_now(successor)
        return Follow(self._state.term, None)

    def _hand_over_when_caught_up(self) -> None:
        transfer = self._transfer
        if transfer is None or transfer.is_requested:
            return
        progress = self._replication.peer(transfer.target)
        if progress is None:
            self._end_transfer(stepped_down=False)
        elif progress.match_end_offset == self._state.log.log_end_offset:
            self._send_timeout_now(transfer.target)
            transfer.is_requested = True

    def _send_timeout_now(self, receiver: NodeId) -> None:
        state = self._state
        state.outbox.append(TimeoutNow(term=state.term, sender=state.node_id, receiver=receiver))

    def _end_transfer(self, *, stepped_down: bool) -> None:
        if self._transfer is not None:
            self._state.finished.append(TransferFinished(self._transfer.ticket, stepped_down))
            self._transfer = None


class _Round(msgspec.Struct, frozen=True):
    number: int
    read_offset: Offset
    tickets: list[int]


class ReadRounds:
    """The reads that wait until a majority has confirmed that this node led when they were asked."""

    def __init__(self) -> None:
        self.current_round = 0
        self._unasked: list[int] = []
        self._asked: deque[_Round] = deque()

    @property
    def has_asked(self) -> bool:
        """Whether a round has begun that is not confirmed."""
        return bool(self._asked)

    def add(self, ticket: int) -> None:
        self._unasked.append(ticket)

    def start_round(self, high_watermark: Offset) -> bool:
        """Put the reads that wait into a new round; return whether there were any."""
        if not self._unasked:
            return False
        self.current_round += 1
        self._asked.append(_Round(self.current_round, high_watermark, self._unasked))
        self._unasked = []
        return True

    def confirm(self, acknowledged_round: int) -> list[Outcome]:
        ready: list[Outcome] = []
        while self._asked and self._asked[0].number <= acknowledged_round:
            confirmed = self._asked.popleft()
            ready.extend(ReadReady(ticket, confirmed.read_offset) for ticket in confirmed.tickets)
        return ready

    def abandon(self) -> list[int]:
        """The tickets of all reads that will not be answered."""
        tickets = [ticket for asked in self._asked for ticket in asked.tickets] + self._unasked
        self._asked.clear()
        self._unasked = []
        return tickets


class Transfer(msgspec.Struct, kw_only=True):
    """While there is one, the leader takes no proposals, so that the target can catch up (thesis, section 3.10)."""

    target: NodeId
    ticket: int
    deadline_ms: int
    is_requested: bool = False  # The target has the whole log and was told to campaign.
