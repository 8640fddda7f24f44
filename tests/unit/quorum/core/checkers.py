"""What must hold in every run of a quorum, each with a name (Raft paper, figure 3), and one for reads."""

from hashlib import blake2b

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind
from quorate.quorum.core.node import RaftNode
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
from quorate.quorum.core.ready import Role

START = b"start"


class ElectionSafety:
    """At most one leader in a term."""

    def __init__(self) -> None:
        self.leaders: dict[Term, NodeId] = {}

    def observe(self, node_id: NodeId, node: RaftNode) -> bool:
        """Return whether this leader is new."""
        state = node.quorum_state
        if state.role is not Role.LEADER:
            return False
        is_new = state.term not in self.leaders
        assert self.leaders.setdefault(state.term, node_id) == node_id, f"two leaders in term {state.term}"
        return is_new


class LogMatching:
    """Two entries of the same offset and term are the same, and so is everything before them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Offset, Term], tuple[EntryKind, bytes, Term]] = {}

    def observe(self, entries: list[Entry], previous_term: Term) -> None:
        for entry in entries:
            identity = (entry.kind, entry.payload, previous_term)
            seen = self._seen.setdefault((entry.offset, entry.term), identity)
            assert seen == identity, f"two logs differ at offset {entry.offset} of term {entry.term}"
            previous_term = entry.term


class StateMachineSafety:
    """Every node applies the same entries in the same order; a snapshot stands for exactly the entries before it."""

    def __init__(self) -> None:
        self.committed: list[Entry] = []
        self._digests = [START]

    def apply(self, entry: Entry, digest: bytes) -> bytes:
        """Return the state of a machine of that digest after the entry."""
        if entry.offset == len(self.committed):
            self.committed.append(entry)
            self._digests.append(_next_digest(self._digests[-1], entry))
        assert entry.offset < len(self.committed), f"offset {entry.offset} is applied before those before it"
        assert self.committed[entry.offset] == entry, f"two entries are committed at offset {entry.offset}"
        assert self._digests[entry.offset] == digest, f"what was applied before offset {entry.offset} differs"
        return self._digests[entry.offset + 1]

    def restore(self, end_offset: Offset, digest: bytes) -> None:
        assert self._digests[end_offset] == digest, f"the snapshot at {end_offset} is not what was committed"


class LeaderCompleteness:
    """What was committed is in the log of every later leader."""

    def observe(self, node: RaftNode, committed: list[Entry]) -> None:
        log = node._state.log
        assert log.log_end_offset >= len(committed), "a leader lacks committed entries"
        for entry in committed[log.start_offset :]:
            assert log.term_before(Offset(entry.offset + 1)) == entry.term, f"a leader has another entry {entry.offset}"


class LinearizableReads:
    """A read sees all that was committed when it was asked for."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}

    def ask(self, ticket: int, committed_end_offset: int) -> None:
        self._asked[ticket] = committed_end_offset

    def answer(self, ready: ReadReady, applied_end_offset: int) -> None:
        assert ready.offset >= self._asked[ready.ticket], f"a stale read at {ready.offset}"
        assert applied_end_offset >= ready.offset, "a read was answered before its offset was applied"


class ProposalFates:
    """Each proposal ends once, and as it was said to end."""

    def __init__(self) -> None:
        self._payloads: dict[int, bytes] = {}
        self._accepted: dict[int, Offset] = {}
        self._fates: dict[int, Outcome] = {}

    def ask(self, ticket: int, payload: bytes) -> None:
        self._payloads[ticket] = payload

    def observe(self, outcome: Outcome, committed: list[Entry]) -> None:
        if isinstance(outcome, ReadReady | TransferFinished) or outcome.ticket not in self._payloads:
            return
        if isinstance(outcome, ProposalAccepted):
            assert outcome.ticket not in self._accepted
            self._accepted[outcome.ticket] = outcome.offset
            return
        assert outcome.ticket not in self._fates, f"a second fate: {outcome}"
        self._fates[outcome.ticket] = outcome
        if isinstance(outcome, ProposalCommitted):
            assert self._accepted[outcome.ticket] == outcome.offset
            assert committed[outcome.offset].payload == self._payloads[outcome.ticket]
        elif isinstance(outcome, ProposalLost | ProposalUncertain):
            assert outcome.ticket in self._accepted

    def check_at_end(self, committed: list[Entry]) -> None:
        payloads = [entry.payload for entry in committed if entry.kind is EntryKind.COMMAND]
        assert len(payloads) == len(set(payloads)), "a proposal was committed twice"
        for ticket, fate in self._fates.items():
            if isinstance(fate, Refused | ProposalLost):
                assert self._payloads[ticket] not in payloads, f"said to be lost, but committed: {fate}"

    @property
    def committed_count(self) -> int:
        return sum(isinstance(fate, ProposalCommitted) for fate in self._fates.values())


def _next_digest(digest: bytes, entry: Entry) -> bytes:
    return blake2b(digest + entry.payload + bytes([entry.kind]), digest_size=8).digest()
