"""The quorum's log in memory: the entries since the last snapshot, and how far they are committed.

Offsets that end a range are exclusive: the log holds [start_offset, log_end_offset), and [0, high_watermark) is
committed.
"""

from collections.abc import Sequence

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import NO_TERM, Entry, EntryKind, InvariantBroken, LogPosition, Snapshot, SnapshotMeta
from quorate.quorum.core.membership import Membership, MembershipHistory, decode_membership


class RaftLog:
    def __init__(self, snapshot: Snapshot | None, entries: Sequence[Entry], bootstrap: Membership) -> None:
        self.snapshot = snapshot
        self._entries: list[Entry] = []
        # The first offset held, and the term of the entry before it. May lie below the end of the snapshot.
        self.start_offset = Offset(0)
        self._term_before_start = NO_TERM
        self._memberships = MembershipHistory(bootstrap, Offset(0))
        if snapshot is not None:
            self._start_after(snapshot.meta)
        self.high_watermark = self.start_offset  # Never moves back.
        self._extend([entry for entry in entries if entry.offset >= self.start_offset])
        # Entries from here on have not been handed to the disk in their present form.
        self.unsaved_from = self.log_end_offset

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.start_offset + len(self._entries))

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self._term_before_start

    @property
    def end(self) -> LogPosition:
        return LogPosition(self.last_term, self.log_end_offset)

    @property
    def membership(self) -> Membership:
        return self._memberships.current

    @property
    def committed_membership(self) -> Membership:
        """The latest that no other can take the place of but by a change."""
        return self._memberships.at(self.high_watermark)

    @property
    def has_uncommitted_membership(self) -> bool:
        return self._memberships.current_offset >= self.high_watermark

    def may_be_voter(self, node_id: NodeId) -> bool:
        """Whether the node has a vote unless some uncommitted change is committed."""
        return any(node_id in membership.voters for membership in self._memberships.not_superseded(self.high_watermark))

    def term_before(self, offset: Offset) -> Term | None:
        """The term of the entry before the offset; None where that entry is not held."""
        index = offset - self.start_offset
        if index == 0:
            return self._term_before_start
        return self._entries[index - 1].term if 0 < index <= len(self._entries) else None

    def read(self, start: Offset, end: Offset) -> list[Entry]:
        if start < self.start_offset:
            raise InvariantBroken(f"offset {start} was compacted: the log starts at {self.start_offset}")
        return self._entries[start - self.start_offset : end - self.start_offset]

    def read_up_to(self, start: Offset, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from an offset on, at least one where there is one."""
        index = start - self.start_offset
        size = 0
        for end in range(index, len(self._entries)):
            size += len(self._entries[end].payload)
            if size > max_bytes and end > index:
                return tuple(self._entries[index:end])
        return tuple(self._entries[index:])

    def is_at_least(self, log_end_offset: Offset, last_term: Term) -> bool:
        """Whether a log that ends so lacks nothing that this one has (paper, section 5.4.1)."""
        return LogPosition(last_term, log_end_offset) >= self.end

    def end_of_terms_up_to(self, term: Term, end_offset: Offset) -> Offset:
        """The largest end, not beyond end_offset, of entries of this term or an earlier one.

        Both sides of a conflict skip whole terms with it, so that a probe costs a round per term and not per entry.
        Below start_offset where even the entries before it are of a later term: only a snapshot helps there.
        """
        end = min(end_offset, self.log_end_offset)
        while end > self.start_offset and self._entries[end - self.start_offset - 1].term > term:
            end = Offset(end - 1)
        return Offset(end - 1) if end == self.start_offset and self._term_before_start > term else end

    def append(self, term: Term, kind: EntryKind, payload: bytes) -> Entry:
        entry = Entry(self.log_end_offset, term, kind, payload)
        self._extend([entry])
        return entry

    def merge(self, entries: Sequence[Entry]) -> Offset | None:
        """Take over entries of a leader; return where the log had to be truncated for them, if it had."""
        for index, entry in enumerate(entries):
            if self.term_before(Offset(entry.offset + 1)) != entry.term:
                truncated_at = entry.offset if entry.offset < self.log_end_offset else None
                if truncated_at is not None:
                    self._truncate(truncated_at)
                self._extend(entries[index:])
                return truncated_at
        return None

    def advance_high_watermark(self, end_offset: Offset) -> None:
        if end_offset < self.high_watermark:
            raise InvariantBroken(f"the high watermark would move back from {self.high_watermark} to {end_offset}")
        if end_offset > self.log_end_offset:
            raise InvariantBroken(f"committed up to {end_offset}, but the log ends at {self.log_end_offset}")
        self.high_watermark = end_offset

    def snapshot_meta(self, end_offset: Offset) -> SnapshotMeta | None:
        if end_offset > self.high_watermark:
            raise InvariantBroken(f"a snapshot at {end_offset}, but only {self.high_watermark} is committed")
        last_term = self.term_before(end_offset)
        if last_term is None:
            return None
        return SnapshotMeta(end_offset, last_term, self._memberships.at(end_offset))

    def compact(self, snapshot: Snapshot, entries_kept: int) -> None:
        """Drop what the snapshot stands for, but for its last entries."""
        if self.term_before(snapshot.meta.end_offset) != snapshot.meta.last_term:
            raise InvariantBroken(f"the snapshot at {snapshot.meta.end_offset} is not one of this log")
        self.snapshot = snapshot
        start = Offset(snapshot.meta.end_offset - entries_kept)
        if start > self.start_offset:
            term = self.term_before(start)
            assert term is not None
            del self._entries[: start - self.start_offset]
            self.start_offset, self._term_before_start = start, term
            self._memberships.compact(start)

    def restore(self, snapshot: Snapshot) -> None:
        """Start anew after a snapshot that is ahead of what is committed here."""
        if snapshot.meta.end_offset <= self.high_watermark:
            raise InvariantBroken(f"a snapshot at {snapshot.meta.end_offset} would undo committed entries")
        self.snapshot = snapshot
        self._entries.clear()
        self._start_after(snapshot.meta)
        self.high_watermark = self.unsaved_from = self.start_offset

    def _start_after(self, meta: SnapshotMeta) -> None:
        self.start_offset, self._term_before_start = meta.end_offset, meta.last_term
        self._memberships = MembershipHistory(meta.membership, meta.end_offset)

    def _truncate(self, end_offset: Offset) -> None:
        if end_offset < self.high_watermark:
            raise InvariantBroken(f"truncation to {end_offset} below the high watermark {self.high_watermark}")
        del self._entries[end_offset - self.start_offset :]
        self._memberships.truncate(end_offset)
        self.unsaved_from = min(self.unsaved_from, end_offset)

    def _extend(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.offset != self.log_end_offset or entry.term < self.last_term:
                raise InvariantBroken(f"entry {entry.offset} of term {entry.term} cannot follow {self.log_end_offset}")
            self._entries.append(entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                self._memberships.append(entry.offset, decode_membership(entry.payload))
