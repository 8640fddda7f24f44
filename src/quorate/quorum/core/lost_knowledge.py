"""Whether a node's disk lacks metadata that the node once had, without any sign of damage.

Such a node must not start: it would vote for what it no longer knows, and a majority of them would form a cluster that
knows of no topic. Where nothing was ever acknowledged nothing is missing: a node that crashed in its first start goes
on.
"""

import msgspec

from quorate.kernel.ids import Offset, Term
from quorate.quorum.acknowledged import Acknowledged
from quorate.quorum.core.entries import NO_TERM, Entry, HardState, Snapshot
from quorate.quorum.quorum_files import RecoveryMark, StoredCopy

_WHAT_TO_DO = "restore it, or remove this node and add it anew with an empty data folder (docs/missing-files.md)"


class MemberFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The paths, as the operator is to see them."""

    log: str
    state: str
    snapshot: str
    acknowledged: str
    recovery: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the disk shows of the node's past."""

    #: The folder is there, be it empty.
    has_log_folder: bool
    hard_state: HardState | None
    snapshot: Snapshot | None
    #: What stands last in ``quorum-acknowledged``.
    acknowledged: Acknowledged | None
    #: ``meta.properties`` says that the node has had entries.
    has_joined: bool
    has_partitions: bool
    state_copy: StoredCopy = StoredCopy()
    snapshot_copy: StoredCopy = StoredCopy()
    acknowledged_is_damaged: bool = False
    acknowledged_is_torn: bool = False
    acknowledged_may_be_later: bool = False
    #: The log is being recovered; what is to be reached, if that can be read.
    mark_copy: StoredCopy = StoredCopy()
    mark: RecoveryMark | None = None


def find_missing_log(evidence: Evidence, files: MemberFiles) -> str | None:
    """Before the log is opened, which would make its folder; the sentence that refuses the start."""
    if evidence.has_log_folder or evidence.mark_copy.is_there:
        return None
    signs = (
        evidence.hard_state is not None
        or evidence.snapshot is not None
        or evidence.acknowledged is not None
        or evidence.has_joined
        or evidence.has_partitions
    )
    return f"{files.log} is missing, but this node has been a member of a cluster: {_WHAT_TO_DO}" if signs else None


def find_missing_knowledge(
    evidence: Evidence, files: MemberFiles, log_start_offset: Offset, entries: tuple[Entry, ...]
) -> str | None:
    """The sentence that refuses the start; ``entries`` are those after the snapshot."""
    hard_state, snapshot = evidence.hard_state, evidence.snapshot
    start = Offset(0) if snapshot is None else snapshot.meta.end_offset
    end = Offset(entries[-1].offset + 1) if entries else start
    if log_start_offset > start:
        what = "missing" if snapshot is None else f"older than {files.log}"
        return f"{files.snapshot} is {what}: {_WHAT_TO_DO}"
    acknowledged = evidence.acknowledged or Acknowledged()
    if end == 0 and _had_entries(evidence):
        return f"{files.log} is empty, but this node has been a member of a cluster: {_WHAT_TO_DO}"
    if end < acknowledged.end_offset or not _has_entry_of(acknowledged, entries):
        return (
            f"{files.log} ends at offset {end} and lacks what this node has acknowledged, up to offset "
            f"{acknowledged.end_offset} in term {acknowledged.last_term}: {_WHAT_TO_DO}"
        )
    if hard_state is None:
        return f"{files.state} is missing: {_WHAT_TO_DO}" if end > 0 or evidence.has_joined else None
    if hard_state.term < max(acknowledged.term, entries[-1].term if entries else NO_TERM):
        return f"{files.state} is older than {files.log}, so that this node could vote twice: {_WHAT_TO_DO}"
    return None


def _had_entries(evidence: Evidence) -> bool:
    """Entries that were never committed may all have been given up again, durably, for those of another leader."""
    gave_up_all = evidence.acknowledged is not None and evidence.acknowledged.end_offset == 0
    return evidence.has_partitions or (evidence.has_joined and not gave_up_all)


def _has_entry_of(acknowledged: Acknowledged, entries: tuple[Entry, ...]) -> bool:
    """Whether the log has the last acknowledged entry, and not another one in its place."""
    if not entries or acknowledged.last_term == NO_TERM:
        return True
    position = acknowledged.end_offset - 1 - entries[0].offset
    if not 0 <= position < len(entries):
        return True  # In the snapshot, which nothing but committed entries add up to.
    return Term(entries[position].term) == acknowledged.last_term
