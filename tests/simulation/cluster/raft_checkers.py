"""What Raft promises (paper, figure 3), each promise with a checker of its own, over all lives of all nodes."""

from collections.abc import Callable, Sequence

import msgspec

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind, HardState
from quorate.quorum.core.log import RaftLog
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import Ready, Role
from tests.simulation.cluster.findings import Findings


class RaftChecker:
    """Looks at every Ready of every node, twice: when it is handed out, and when it has been carried out."""

    name = ""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def disk_lost(self, node_id: NodeId) -> None:
        """What a node had written is gone."""

    def log_damaged(self, node_id: NodeId) -> None:
        """A part of what a node had written, but for its vote, cannot be read any more."""

    def restored(self, node_id: NodeId, raft: RaftNode) -> None:
        """A node has come back with what its disk kept."""

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None: ...

    def carried_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        """What it holds is durable, sent and applied."""

    def _report(self, text: str) -> None:
        self._findings.report(self.name, text)


class ElectionSafety(RaftChecker):
    """A term has at most one leader."""

    name = "election safety"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._leaders: dict[Term, NodeId] = {}

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        state = ready.quorum_state
        if state is not None and state.role is Role.LEADER:
            first = self._leaders.setdefault(state.term, node_id)
            if first != node_id:
                self._report(f"nodes {first} and {node_id} both lead term {state.term}")


class LogMatching(RaftChecker):
    """Logs that have an entry of the same offset and term are the same up to it.

    By induction it is enough that such entries are equal and follow entries of the same term.
    """

    name = "log matching"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._entries: dict[tuple[Offset, Term], tuple[EntryKind, bytes, Term | None]] = {}

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        if not ready.entries:
            return
        previous_term = log_of(raft).term_before(ready.entries[0].offset)
        for entry in ready.entries:
            found = (entry.kind, entry.payload, previous_term)
            known = self._entries.setdefault((entry.offset, entry.term), found)
            if known != found:
                self._report(
                    f"entry {entry.offset} of term {entry.term} is {found} on node {node_id}, elsewhere {known}"
                )
            previous_term = entry.term


class Committed(msgspec.Struct, frozen=True):
    entry: Entry
    #: Of the node that was first to know that the entry is committed.
    in_term: Term


class StateMachineSafety(RaftChecker):
    """What one node applies at an offset, no node ever applies differently."""

    name = "state machine safety"

    def __init__(self, findings: Findings, on_committed: Callable[[Entry], None]) -> None:
        super().__init__(findings)
        self.committed: list[Committed] = []
        self._on_committed = on_committed

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        for entry in ready.committed:
            if entry.offset < len(self.committed):
                known = self.committed[entry.offset].entry
                if known != entry:
                    self._report(f"node {node_id} applies {entry}, but {known} was applied at that offset")
            elif entry.offset == len(self.committed):
                self.committed.append(Committed(entry, raft.quorum_state.term))
                self._on_committed(entry)
            else:
                self._report(f"node {node_id} applies offset {entry.offset}; nobody applied {len(self.committed)}")


class LeaderCompleteness(RaftChecker):
    """A leader has every entry that was committed in an earlier term."""

    name = "leader completeness"

    def __init__(self, findings: Findings, committed: Sequence[Committed]) -> None:
        super().__init__(findings)
        self._committed = committed

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        state = ready.quorum_state
        if state is None or state.role is not Role.LEADER or state.can_decide:
            return
        log = log_of(raft)
        held = log.read(log.start_offset, log.log_end_offset)
        for committed in self._committed[log.start_offset :]:
            if committed.in_term >= state.term:
                return
            index = committed.entry.offset - log.start_offset
            if index >= len(held) or held[index] != committed.entry:
                self._report(f"node {node_id} leads term {state.term} without the committed {committed.entry}")
                return


class Durability(RaftChecker):
    """What a node has acted upon (term, vote, entries) is there when it comes back."""

    name = "durability"

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._hard_states: dict[NodeId, HardState] = {}
        #: The term of each entry that a node has on its disk for sure.
        self._terms: dict[NodeId, dict[Offset, Term]] = {}
        #: From where on a write that may or may not be complete changes the log.
        self._writing_from: dict[NodeId, Offset] = {}

    def disk_lost(self, node_id: NodeId) -> None:
        self._hard_states.pop(node_id, None)
        self._terms.pop(node_id, None)
        self._writing_from.pop(node_id, None)

    def log_damaged(self, node_id: NodeId) -> None:
        self._terms.pop(node_id, None)
        self._writing_from.pop(node_id, None)

    def restored(self, node_id: NodeId, raft: RaftNode) -> None:
        known = self._hard_states.get(node_id)
        found = HardState(raft.quorum_state.term, raft._state.voted_for)
        if known is not None and not _continues(known, found):
            self._report(f"node {node_id} came back with {found}, but had acted upon {known}")
        log = log_of(raft)
        writing_from = self._writing_from.pop(node_id, None)
        for offset, term in self._terms.get(node_id, {}).items():
            if offset < log.start_offset or (writing_from is not None and offset >= writing_from):
                continue
            if log.term_before(Offset(offset + 1)) != term:
                self._report(f"node {node_id} came back without entry {offset} of term {term}")
                return
        held = log.read(log.start_offset, log.log_end_offset)
        self._terms[node_id] = {entry.offset: entry.term for entry in held}

    def handed_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        if ready.snapshot is not None:
            self._writing_from[node_id] = Offset(0)
        elif ready.entries:
            self._writing_from[node_id] = ready.entries[0].offset

    def carried_out(self, node_id: NodeId, raft: RaftNode, ready: Ready) -> None:
        if ready.hard_state is not None:
            known = self._hard_states.get(node_id)
            if known is not None and not _continues(known, ready.hard_state):
                self._report(f"node {node_id} goes from {known} to {ready.hard_state}")
            self._hard_states[node_id] = ready.hard_state
        self._writing_from.pop(node_id, None)
        terms = self._terms.setdefault(node_id, {})
        if ready.snapshot is not None:
            terms.clear()
        if ready.entries:
            for offset in [offset for offset in terms if offset >= ready.entries[0].offset]:
                del terms[offset]
            terms.update((entry.offset, entry.term) for entry in ready.entries)


def _continues(before: HardState, after: HardState) -> bool:
    if before.term == after.term:
        return before.voted_for in (None, after.voted_for)
    return after.term > before.term


class RaftCheckers:
    """All of them, attached to each node when it starts."""

    def __init__(self, findings: Findings, on_committed: Callable[[Entry], None]) -> None:
        applied = StateMachineSafety(findings, on_committed)
        self._checkers: Sequence[RaftChecker] = (
            ElectionSafety(findings),
            LogMatching(findings),
            applied,
            LeaderCompleteness(findings, applied.committed),
            Durability(findings),
        )

    def disk_lost(self, node_id: NodeId) -> None:
        for checker in self._checkers:
            checker.disk_lost(node_id)

    def log_damaged(self, node_id: NodeId) -> None:
        for checker in self._checkers:
            checker.log_damaged(node_id)

    def attach(self, node_id: NodeId, raft: RaftNode) -> None:
        """Look on from now on. The core is not changed, only overheard."""
        ready_of, advance_of = raft.ready, raft.advance

        def next_ready() -> Ready | None:
            out = ready_of()
            if out is not None:
                for checker in self._checkers:
                    checker.handed_out(node_id, raft, out)
            return out

        def advance(ready: Ready) -> None:
            for checker in self._checkers:
                checker.carried_out(node_id, raft, ready)
            advance_of(ready)

        raft.ready = next_ready  # type: ignore[method-assign]
        raft.advance = advance  # type: ignore[method-assign]
        for checker in self._checkers:
            checker.restored(node_id, raft)


def log_of(raft: RaftNode) -> RaftLog:
    return raft._state.log
