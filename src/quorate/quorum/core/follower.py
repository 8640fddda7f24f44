"""A node that follows: takes entries over from the leader, and campaigns when there seems to be none.

Learners and nodes outside the membership are followers that never campaign.
"""

from quorate.kernel.ids import NodeId, Offset
from quorate.quorum.core.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    FromLeader,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    TimeoutNow,
)
from quorate.quorum.core.roles import Campaign, CampaignPhase, Transition
from quorate.quorum.core.state import RaftState


class Follower:
    def __init__(self, state: RaftState, election_deadline_ms: int) -> None:
        self._state = state
        self.election_deadline_ms = election_deadline_ms
        self._has_somebody = False  # A leader was heard, or a candidate got this node's vote.

    @property
    def deadline_ms(self) -> int | None:
        """When to campaign.

        A node that is leaving campaigns until its removal is committed: with its longer log it may be the only one
        that can win (thesis, section 4.2.2). One whose log was damaged waits to be given it again.
        """
        state = self._state
        may_campaign = state.log.may_be_voter(state.node_id) and not state.is_recovering
        return self.election_deadline_ms if may_campaign else None

    def wake(self) -> Transition:
        return Campaign(CampaignPhase.PRE_VOTE)

    def receive(self, message: Message) -> Transition:
        match message:
            case AppendRequest():
                self.hear_leader(message.sender)
                self._append(message)
            case Heartbeat():
                self.hear_leader(message.sender)
                self._take_heartbeat(message)
            case InstallSnapshot():
                self.hear_leader(message.sender)
                self._install(message)
            case TimeoutNow() if self._state.is_voter and not self._state.is_recovering:
                return Campaign(CampaignPhase.VOTE, is_transfer=True)
            case _:
                pass  # Answers to what this node asked in a role it no longer has.
        return None

    def hear_leader(self, leader: NodeId) -> None:
        state = self._state
        state.leader = leader
        state.lease_end_ms = state.now_ms + state.config.election_timeout_min_ms
        self.await_leader()

    def await_leader(self) -> None:
        """Give the leader, or the candidate that got this node's vote, a whole election timeout."""
        self._has_somebody = True
        self.election_deadline_ms = self._state.election_deadline()

    def lose_connection(self, peer: NodeId) -> None:
        state = self._state
        if peer != state.leader:
            return
        state.leader = None
        self._campaign_soon()

    def reach_majority(self) -> None:
        if not self._has_somebody:
            self._campaign_soon()

    def _campaign_soon(self) -> None:
        soon_ms = self._state.time_between(0, self._state.config.connection_jitter_ms)
        self.election_deadline_ms = min(self.election_deadline_ms, soon_ms)

    def _append(self, request: AppendRequest) -> None:
        log = self._state.log
        if request.base_offset < log.high_watermark:
            # Late or repeated. What is committed here is the leader's too, and need not be compared.
            self._accept(request, log.high_watermark)
            return
        if log.term_before(request.base_offset) != request.previous_term:
            self._reject(request)
            return
        self._state.merge(request.entries)
        match_end_offset = Offset(request.base_offset + len(request.entries))
        self._commit(min(request.high_watermark, match_end_offset))
        self._accept(request, match_end_offset)

    def _reject(self, request: AppendRequest) -> None:
        log = self._state.log
        end_offset = log.end_of_terms_up_to(request.previous_term, request.base_offset)
        term = log.term_before(end_offset)
        assert term is not None, "the log holds all that is not committed"
        self._state.outbox.append(
            AppendRejected(
                term=self._state.term,
                sender=self._state.node_id,
                receiver=request.sender,
                base_offset=request.base_offset,
                diverging_end_offset=end_offset,
                diverging_term=term,
                is_recovering=self._state.is_recovering,
            )
        )

    def _take_heartbeat(self, heartbeat: Heartbeat) -> None:
        state = self._state
        if not state.is_recovering:  # Else the leader may still think of the log that was lost.
            self._commit(heartbeat.high_watermark)
        state.outbox.append(
            HeartbeatResponse(
                term=state.term,
                sender=state.node_id,
                receiver=heartbeat.sender,
                read_round=heartbeat.read_round,
                recovered_end_offset=state.log.log_end_offset if state.is_recovering else None,
            )
        )

    def _install(self, message: InstallSnapshot) -> None:
        log = self._state.log
        meta = message.snapshot.meta
        if meta.end_offset > log.high_watermark:
            if log.term_before(meta.end_offset) == meta.last_term:
                self._commit(meta.end_offset)  # All that the snapshot stands for is here already.
            else:
                self._state.install(message.snapshot)
        self._accept(message, log.high_watermark)

    def _commit(self, end_offset: Offset) -> None:
        if end_offset > self._state.log.high_watermark:
            self._state.commit(end_offset)

    def _accept(self, message: FromLeader, match_end_offset: Offset) -> None:
        self._state.outbox.append(
            AppendAccepted(
                term=self._state.term,
                sender=self._state.node_id,
                receiver=message.sender,
                match_end_offset=match_end_offset,
            )
        )
