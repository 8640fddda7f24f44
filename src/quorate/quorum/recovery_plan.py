"""What a member does at its start about damage to its own files: protocol-aware recovery (Alagappan et al., FAST '18).

Damaged is what is there and is not what was written; the rest of the cluster has it, and gives it back. Missing is what
is not there at all, or is sound and too old: somebody took it away, and the node does not start (``lost_knowledge``).
A member that lost a part of its log goes on with the sound part, and takes part in elections again once its log is as
far as it was.
"""

import msgspec

from quorate.kernel.ids import Offset, Term
from quorate.quorum.acknowledged import Acknowledged
from quorate.quorum.core.entries import NO_TERM, Entry, HardState, LogPosition, Snapshot
from quorate.quorum.core.lost_knowledge import Evidence, MemberFiles, find_missing_knowledge
from quorate.quorum.doubled_file import Finding
from quorate.quorum.log_scan import ScannedLog, end_of

#: Where the vote cannot be read, how many elections there can at most have been since what is known of the term. What
#: is known may be older than the vote only by what a power cut took of ``quorum-acknowledged``.
_TERMS_LEFT_OUT = 1_000

_WHAT_TO_DO = "restore it, or remove this node and add it anew with an empty data folder (docs/missing-files.md)"


class RecoveryPlan(msgspec.Struct, frozen=True, kw_only=True):
    #: In one sentence why the node must not start, if so.
    refusal: str | None = None
    findings: tuple[Finding, ...] = ()
    hard_state: HardState
    #: None where there is none, or none that can be read.
    snapshot: Snapshot | None
    #: The sound ones after the snapshot.
    entries: tuple[Entry, ...]
    #: How far the log has to go again.
    lost_log: LogPosition | None = None
    writes_state: bool = False
    sets_snapshot_aside: bool = False
    #: The log's folder is set aside, and one made that has the entries.
    rewrites_log: bool = False
    rewrites_acknowledged: bool = False

    @property
    def start(self) -> Offset:
        return Offset(0) if self.snapshot is None else self.snapshot.meta.end_offset

    @property
    def log_end(self) -> LogPosition:
        end = end_of(self.entries, self.start)
        if self.entries:
            return LogPosition(self.entries[-1].term, end)
        return LogPosition(NO_TERM if self.snapshot is None else self.snapshot.meta.last_term, end)


def plan_recovery(evidence: Evidence, scan: ScannedLog, files: MemberFiles, *, has_peers: bool) -> RecoveryPlan:
    return _Planner(evidence, scan, files, has_peers=has_peers).plan()


class _Planner:
    def __init__(self, evidence: Evidence, scan: ScannedLog, files: MemberFiles, *, has_peers: bool) -> None:
        self._evidence = evidence
        self._scan = scan
        self._files = files
        self._has_peers = has_peers
        self._findings: list[Finding] = []
        snapshot = evidence.snapshot
        self._start = Offset(0) if snapshot is None else snapshot.meta.end_offset
        self._entries = scan.entries_from(self._start)
        self._end = end_of(self._entries, self._start)
        self._acknowledged = evidence.acknowledged or Acknowledged()
        # How far the log went, by what this node has acknowledged and by what was written behind the damage.
        acknowledged = LogPosition(self._acknowledged.last_term, self._acknowledged.end_offset)
        self._went_to = max(acknowledged, scan.written_later or LogPosition())
        self._is_short = self._end < max(acknowledged.end_offset, self._went_to.end_offset)

    def plan(self) -> RecoveryPlan:
        evidence = self._evidence
        is_short = self._is_short
        has_no_base = self._scan.stored_start > self._start
        log_is_damaged = self._scan.problem is not None and (is_short or self._scan.problem_offset < self._end)
        rewrites_log = log_is_damaged or evidence.snapshot_copy.is_damaged or (has_no_base and self._is_recovering)
        loses = self._is_recovering or self._acknowledged_is_unknown or (rewrites_log and is_short)
        hard_state, writes_state = self._hard_state(forgot_what_it_acknowledged=loses and self._target_is_unknown)
        refusal = self._refusal(hard_state, is_damaged=rewrites_log or (loses and self._has_peers), loses=loses)
        self._note_findings(log_is_damaged, is_short=is_short)
        return RecoveryPlan(
            refusal=refusal,
            findings=tuple(self._findings),
            hard_state=hard_state or HardState(),
            snapshot=evidence.snapshot,
            entries=self._entries,
            lost_log=self._lost_log(hard_state) if loses and self._has_peers else None,
            writes_state=writes_state,
            sets_snapshot_aside=evidence.snapshot_copy.is_damaged,
            rewrites_log=rewrites_log,
            rewrites_acknowledged=evidence.acknowledged_is_damaged or evidence.acknowledged_is_torn,
        )

    @property
    def _is_recovering(self) -> bool:
        return self._evidence.mark_copy.is_there

    @property
    def _acknowledged_is_unknown(self) -> bool:
        """A log that is whole, and ends behind all that can be read, tells it as well."""
        evidence = self._evidence
        if evidence.acknowledged is None:
            return evidence.acknowledged_is_damaged
        return evidence.acknowledged_may_be_later and self._scan.problem is not None

    @property
    def _target_is_unknown(self) -> bool:
        evidence = self._evidence
        if self._acknowledged_is_unknown or (self._is_recovering and evidence.mark is None):
            return True
        return self._acknowledged.end_offset > self._end and self._went_to.last_term == NO_TERM

    def _hard_state(self, *, forgot_what_it_acknowledged: bool) -> tuple[HardState | None, bool]:
        """The term and vote to go on with, and whether they have to be written.

        Where the vote cannot be read, in a term that is later than any in which this node may have voted. Where nobody
        can tell what was acknowledged, in one in which nothing was: an entry of it makes up for all earlier ones.
        """
        evidence = self._evidence
        found, copy = evidence.hard_state, evidence.state_copy
        if found is None and copy.is_there and (known := self._known_term()) > NO_TERM:
            return HardState(Term(known + _TERMS_LEFT_OUT)), True
        if found is not None and forgot_what_it_acknowledged and self._has_peers:
            return HardState(Term(found.term + 1)), True
        return found, copy.is_damaged

    def _known_term(self) -> Term:
        evidence = self._evidence
        terms = [self._acknowledged.term, *(entry.term for entry in self._scan.entries[-1:])]
        terms += [] if evidence.snapshot is None else [evidence.snapshot.meta.last_term]
        terms += [] if evidence.mark is None else [evidence.mark.last_term]
        return max(terms)

    def _lost_log(self, hard_state: HardState | None) -> LogPosition:
        mark = self._evidence.mark
        if self._target_is_unknown:
            return LogPosition(NO_TERM if hard_state is None else hard_state.term, Offset(0))
        return self._went_to if mark is None else max(self._went_to, mark.lost_log)

    def _refusal(self, hard_state: HardState | None, *, is_damaged: bool, loses: bool) -> str | None:
        files, evidence = self._files, self._evidence
        if hard_state is None and evidence.state_copy.is_there:
            return f"{files.state} is damaged, and nothing tells in which terms this node has voted: {_WHAT_TO_DO}"
        if loses and not self._has_peers and (self._is_short or self._is_recovering):
            damaged = files.snapshot if evidence.snapshot_copy.is_damaged else files.log
            why = "" if self._scan.problem is None else f" ({self._scan.problem})"
            return f"{damaged} is damaged{why}, and no other node has what it held: {_WHAT_TO_DO}"
        if is_damaged:
            return f"{files.state} is missing: {_WHAT_TO_DO}" if hard_state is None else None
        known = msgspec.structs.replace(evidence, hard_state=hard_state)
        return find_missing_knowledge(known, files, self._scan.stored_start, self._entries)

    def _note_findings(self, log_is_damaged: bool, *, is_short: bool) -> None:
        evidence, files = self._evidence, self._files
        if log_is_damaged:
            self._note(files.log, self._scan.problem or "", is_repaired=not is_short)
        if evidence.snapshot_copy.is_damaged:
            self._note(files.snapshot, "its CRC is wrong", is_repaired=not is_short and bool(self._entries))
        if evidence.state_copy.is_damaged:
            found = evidence.hard_state is not None
            self._note(files.state, "one of its copies is not as it was written" if found else "the vote is lost")
        if evidence.acknowledged_is_damaged:
            self._note(files.acknowledged, "a line in it is not as it was written", may_be_torn=True)
        if evidence.mark_copy.is_damaged:
            self._note(files.recovery, "it is not as it was written")

    def _note(self, path: str, problem: str, *, is_repaired: bool = True, may_be_torn: bool = False) -> None:
        found = Finding(path=path, problem=problem, is_repaired=is_repaired, may_be_torn=may_be_torn)
        self._findings.append(found)
