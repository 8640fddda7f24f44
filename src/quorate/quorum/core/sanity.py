"""What no sound node can have said: messages are judged before they change anything.

Raft trusts the nodes that take part in it, but whoever reaches the peer port can say anything. What could only break
this node, because Raft rules it out, is refused here with the reason; ``RaftNode.step`` may then take what is left at
its word, and an ``InvariantBroken`` from it is this node's own fault.
"""

from collections.abc import Sequence
from typing import Final

from quorate.kernel.address import parse_address
from quorate.kernel.errors import UNREADABLE, QuorateError
from quorate.kernel.ids import MAX_NODE_ID, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind
from quorate.quorum.core.log import RaftLog
from quorate.quorum.core.membership import Membership, decode_membership
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
    VoteRequest,
)
from quorate.quorum.core.state import RaftState

#: A term is stored as the leader epoch of a batch, an int32.
MAX_TERM: Final = Term(2**31 - 1)
#: Far below the end of int64, so that nothing that is added to an offset overflows.
MAX_OFFSET: Final = Offset(2**62)
_MAX_MEMBERS: Final = 10_000
_MAX_ADDRESS_CHARS: Final = 300

#: How many elections a node can have missed, and how many there can be in a second.
_MAX_MISSED_ELECTIONS: Final = 2**16
_MAX_ELECTIONS_PER_SECOND: Final = 10


class TermAllowance:
    """How far other nodes may move this node's term: terms must last for ever, and each election takes only one.

    A node that was away may be many elections behind, so a large step is allowed once; after that, no more than any
    cluster can hold elections. So int32 lasts for years even if somebody does nothing but raise the term.
    """

    def __init__(self, term: Term, now_ms: int) -> None:
        self._term = term
        self._now_ms = now_ms
        self._steps_left = float(_MAX_MISSED_ELECTIONS)

    def admits(self, asked: Term, term: Term, now_ms: int) -> bool:
        """Whether a node that is in ``term`` may go on to the term asked for."""
        earned = (now_ms - self._now_ms) * _MAX_ELECTIONS_PER_SECOND / 1000
        spent = term - self._term
        self._steps_left = max(0.0, min(_MAX_MISSED_ELECTIONS, self._steps_left + earned) - spent)
        self._term, self._now_ms = term, now_ms
        # One more is always allowed: that is what every election asks for.
        return asked - term <= max(1.0, self._steps_left)


def objection(message: Message, state: RaftState, *, leads: bool, read_round: int = 0) -> str | None:
    """Why no sound node sends this message to this one; ``read_round`` is the last that this node has asked for."""
    if message.receiver != state.node_id:
        return f"it is meant for node {message.receiver}"
    if not 0 <= message.term <= MAX_TERM:
        return f"there is no term {message.term}"
    match message:
        case VoteRequest():
            return _log_end_objection(message.log_end_offset, message.last_term, message.term)
        case AppendRequest() | Heartbeat() | InstallSnapshot():
            return _leader_objection(message, state, leads=leads)
        case AppendAccepted() | AppendRejected() | HeartbeatResponse():
            return _answer_objection(message, state, read_round, leads=leads and message.term == state.term)
        case TimeoutNow() if message.term == state.term and state.leader not in (None, message.sender):
            return f"node {state.leader} leads term {message.term}, and alone may hand it over"
        case _:
            return None


def _leader_objection(message: FromLeader, state: RaftState, *, leads: bool) -> str | None:
    if message.term < state.term:
        return None  # Of a term that is over: it is answered without being read.
    if leads and message.term == state.term:
        return f"this node itself leads term {message.term}"
    if message.term == state.term and state.leader not in (None, message.sender):
        return f"node {state.leader} leads term {message.term}, and there is one leader in a term"
    match message:
        case AppendRequest():
            return _append_objection(message, state.log)
        case InstallSnapshot():
            return _snapshot_objection(message, state.log)
        case Heartbeat():
            if state.is_recovering and 0 <= message.high_watermark <= MAX_OFFSET:
                return None  # The leader may not know yet what was lost here.
            if not 0 <= message.high_watermark <= state.log.log_end_offset:
                return f"{message.high_watermark} is not committed here: the log ends at {state.log.log_end_offset}"
            return None if 0 <= message.read_round <= MAX_OFFSET else f"there is no round {message.read_round}"


def _append_objection(message: AppendRequest, log: RaftLog) -> str | None:
    reason = _log_end_objection(message.base_offset, message.previous_term, message.term)
    if reason is None and not 0 <= message.high_watermark <= MAX_OFFSET:
        reason = f"there is no offset {message.high_watermark}"
    if reason is None and message.base_offset >= log.high_watermark:
        reason = _other_history(message.previous_term, log)
    return reason or entries_objection(message.entries, message.base_offset, message.previous_term, message.term)


def entries_objection(
    entries: Sequence[Entry], base_offset: Offset, previous_term: Term, last_term: Term
) -> str | None:
    """Why these entries cannot stand in a log from an offset on, between the two terms."""
    offset, term = base_offset, previous_term
    for entry in entries:
        if entry.offset != offset:
            return f"entry {entry.offset} stands where {offset} is due"
        if not max(1, term) <= entry.term <= last_term:
            return f"entry {entry.offset} of term {entry.term} stands between the terms {term} and {last_term}"
        if entry.kind is EntryKind.MEMBERSHIP and (reason := _encoded_membership_objection(entry.payload)) is not None:
            return reason
        offset, term = Offset(offset + 1), entry.term
    return None


def _snapshot_objection(message: InstallSnapshot, log: RaftLog) -> str | None:
    meta = message.snapshot.meta
    reason = _log_end_objection(meta.end_offset, meta.last_term, message.term)
    if reason is None and meta.end_offset > log.high_watermark:
        reason = _other_history(meta.last_term, log)
    return reason or membership_objection(meta.membership)


def _answer_objection(
    message: AppendAccepted | AppendRejected | HeartbeatResponse, state: RaftState, read_round: int, *, leads: bool
) -> str | None:
    if not leads:
        return None  # Nothing is asked any more; it is not looked at.
    end = state.log.log_end_offset
    match message:
        case AppendAccepted():
            known = 0 <= message.match_end_offset <= end
            return None if known else f"nobody has sent it {message.match_end_offset}: the log ends at {end}"
        case AppendRejected():
            if not 0 <= message.diverging_end_offset <= message.base_offset <= end:
                return f"it was not sent entries at {message.base_offset}, where the log ends at {end}"
            known = 0 <= message.diverging_term <= message.term
            return None if known else f"there is no term {message.diverging_term} before {message.term}"
        case HeartbeatResponse():
            if not 0 <= (message.recovered_end_offset or 0) <= MAX_OFFSET:
                return f"no log ends at {message.recovered_end_offset}"
            known = 0 <= message.read_round <= read_round
            return None if known else f"there was no round {message.read_round} yet"


def _log_end_objection(end_offset: Offset, last_term: Term, term: Term) -> str | None:
    """Why no log of a node in this term ends so."""
    if not 0 <= end_offset <= MAX_OFFSET:
        return f"there is no offset {end_offset}"
    if not 0 <= last_term <= term:
        return f"there is no entry of term {last_term} in term {term}"
    if (end_offset == 0) != (last_term == 0):
        return f"no log ends at {end_offset} in term {last_term}"
    return None


def _other_history(last_term: Term, log: RaftLog) -> str | None:
    """A leader's log holds all that is committed, and terms only grow along it."""
    committed_term = log.term_before(log.high_watermark)
    if committed_term is not None and last_term < committed_term:
        return f"its log is in term {last_term} where entries of term {committed_term} are committed"
    return None


def _encoded_membership_objection(payload: bytes) -> str | None:
    try:
        return membership_objection(decode_membership(payload))
    except UNREADABLE as error:
        return f"a membership cannot be read: {error}"


def membership_objection(membership: Membership) -> str | None:
    node_ids = membership.node_ids
    if not membership.voters or len(node_ids) > _MAX_MEMBERS:
        return f"no quorum has {len(membership.voters)} voters of {len(node_ids)} members"
    if list(node_ids) != sorted(set(node_ids)) or not 0 <= node_ids[0] <= node_ids[-1] <= MAX_NODE_ID:
        return "a membership whose node ids are not in order, or are none"
    wrong = next((each.address for each in membership.members if not is_address(each.address)), None)
    return None if wrong is None else f"a member has the address {wrong[:_MAX_ADDRESS_CHARS]!r}"


def is_address(text: str) -> bool:
    """Whether a node can be dialled there. Nobody dials the one node of a cluster, which may have none."""
    if not text:
        return True
    if len(text) > _MAX_ADDRESS_CHARS or not text.isprintable():
        return False
    try:
        parse_address(text)
    except QuorateError:
        return False
    return True
