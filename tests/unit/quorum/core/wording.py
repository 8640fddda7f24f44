"""How a conversation script says what nodes send, apply and become."""

from quorate.quorum.core.entries import Entry, EntryKind
from quorate.quorum.core.membership import Membership, decode_membership
from quorate.quorum.core.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    TermNotice,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quorate.quorum.core.outcomes import (
    Outcome,
    ProposalAccepted,
    ProposalCommitted,
    ProposalLost,
    ProposalUncertain,
    ReadReady,
    Refused,
    TransferFinished,
)
from quorate.quorum.core.ready import QuorumState


def message_words(message: Message) -> str:
    return f"{message.sender} -> {message.receiver}  term {message.term}: {_content_words(message)}"


def _content_words(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            transfer = ", by transfer" if message.is_transfer else ""
            return f"asks for a {kind}, log ends {message.log_end_offset}@{message.last_term}{transfer}"
        case VoteResponse():
            kind = "pre-vote" if message.is_pre_vote else "vote"
            return f"{kind} {'granted' if message.granted else 'refused'}"
        case AppendRequest():
            entries = " ".join(entry_words(entry) for entry in message.entries) or "nothing"
            place = f"after {message.base_offset}@{message.previous_term}"
            return f"append {entries} {place}, high watermark {message.high_watermark}"
        case AppendAccepted():
            return f"accepted up to {message.match_end_offset}"
        case AppendRejected():
            hint = f"{message.diverging_end_offset}@{message.diverging_term}"
            recovering = ", recovering" if message.is_recovering else ""
            return f"rejected at {message.base_offset}, may agree up to {hint}{recovering}"
        case Heartbeat():
            return f"heartbeat, high watermark {message.high_watermark}, read round {message.read_round}"
        case HeartbeatResponse():
            end = message.recovered_end_offset
            recovering = "" if end is None else f", recovering, log ends at {end}"
            return f"heard, read round {message.read_round}{recovering}"
        case InstallSnapshot():
            meta = message.snapshot.meta
            return f"snapshot up to {meta.end_offset}@{meta.last_term} of {membership_words(meta.membership)}"
        case TimeoutNow():
            return "campaign now"
        case TermNotice():
            return "your term is over"


def entry_words(entry: Entry) -> str:
    match entry.kind:
        case EntryKind.NO_OP:
            content = "no-op"
        case EntryKind.COMMAND:
            content = entry.payload.decode()
        case EntryKind.MEMBERSHIP:
            content = membership_words(decode_membership(entry.payload))
    return f"{entry.offset}@{entry.term}:{content}"


def membership_words(membership: Membership) -> str:
    voters = "+".join(str(node_id) for node_id in sorted(membership.voters))
    learners = "+".join(str(node_id) for node_id in sorted(membership.learners))
    return f"{{{voters}{' learning ' + learners if learners else ''}}}"


def outcome_words(outcome: Outcome) -> str:
    match outcome:
        case Refused():
            leader = f", the leader is {outcome.leader.node_id}" if outcome.leader else ""
            return f"refused ({outcome.reason.value}{leader})"
        case ProposalAccepted():
            return f"accepted at {outcome.offset}@{outcome.term}"
        case ProposalCommitted():
            return f"committed at {outcome.offset}"
        case ProposalLost():
            return "lost"
        case ProposalUncertain():
            return "uncertain"
        case ReadReady():
            return f"may read once {outcome.offset} is applied"
        case TransferFinished():
            return "handed over" if outcome.stepped_down else "not handed over"


def state_words(state: QuorumState) -> str:
    leader = "no leader" if state.leader is None else f"leader {state.leader.node_id}"
    decides = ", can decide" if state.can_decide else ""
    return f"{state.role.value}, term {state.term}, {leader}{decides}"
