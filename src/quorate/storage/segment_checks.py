"""Checking a segment against its checksums and its own batches, and applying the result to the log.

The check itself runs in a worker thread, in steps that the caller paces, on a handle of the file and a copy of what is
known: it changes nothing. ``note_check`` belongs to the loop's thread. The result is about the segment as it was: it is
discarded where the log was truncated meanwhile, or the segment replaced.

=================  ============================================  ==============================================
a segment          becomes so                                    and is
=================  ============================================  ==============================================
unchecked          when the log is opened and the disk is not    not read: readers get ``UncheckedSegment`` and
                   trusted                                       wait for its check
sound              when it is written, or a check finds nothing  read
with bad indexes   when a check finds that they do not match     not read until they are made from the log
damaged            when a check finds damaged ranges             read outside of them; inside, readers get
                                                                 ``DamagedRecords``
=================  ============================================  ==============================================

A repair puts a new segment in the place of one with damage or bad indexes (``segment_repair``).
"""

from collections.abc import Iterator, Sequence

import msgspec

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk, DiskFile
from quorate.storage.checkpoints import EpochStart
from quorate.storage.damage import DamagedRange, DamageSearch, LogExtent
from quorate.storage.segment import Segment
from quorate.storage.segment_checksums import (
    SegmentChecksums,
    SummedLog,
    damaged_chunks,
    has_transactions,
    indexes_match,
    read_checksums,
    stored_match,
    transactions_match,
    write_checksums,
)
from quorate.storage.state import LogState


class CheckedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment as it was when its check began."""

    segment: Segment
    directory: str
    base_offset: Offset
    file: DiskFile
    size_bytes: int
    end_offset: Offset
    #: Whether it has grown since it was last closed or sealed: then its indexes are not whole in their files.
    is_growing: bool
    #: Size and CRC of what is stored of its offset and time index so far, where that is known.
    stored_indexes: tuple[tuple[int, int] | None, tuple[int, int] | None]
    #: Whether its indexes were written or checked since the process started.
    indexes_are_checked: bool
    epochs: Sequence[EpochStart]
    may_have_holes: bool
    truncations: int


class SegmentReport(msgspec.Struct, frozen=True, kw_only=True):
    damage: list[DamagedRange]
    #: The sparse indexes, or the one of aborted transactions, are not what was stored.
    indexes_are_damaged: bool = False
    transactions_are_damaged: bool = False
    #: There is no usable checksum file.
    lacks_checksums: bool = False

    @property
    def is_sound(self) -> bool:
        return not (self.damage or self.indexes_are_damaged or self.transactions_are_damaged)


class SegmentCheck:
    """One check of one segment; ``step`` is called again and again, from a worker thread, until it is done."""

    def __init__(self, disk: Disk, subject: CheckedSegment) -> None:
        self.subject = subject
        self.report: SegmentReport | None = None
        self._disk = disk
        self._steps = self._run()

    def step(self, max_bytes: int) -> int:
        """Read on for about so many bytes, and return how many were read."""
        read_bytes = 0
        while self.report is None and read_bytes < max_bytes:
            read_bytes += next(self._steps, 0)
        return read_bytes

    def finish(self) -> SegmentReport:
        while self.report is None:
            next(self._steps, 0)
        return self.report

    def _run(self) -> Iterator[int]:
        subject = self.subject
        known = read_checksums(self._disk, subject.directory, subject.base_offset)
        if known is not None and known.log_size_bytes > subject.size_bytes:
            known = None  # The log was truncated since they were written.
        suspect: list[tuple[int, int]] = []
        if known is not None:
            yield from damaged_chunks(known, subject.file, suspect)
        search = DamageSearch(subject.file, self._extent(known, suspect))
        yield from search.steps()
        self.report = SegmentReport(
            damage=search.found,
            indexes_are_damaged=not self._indexes_are_sound(known),
            transactions_are_damaged=not self._transactions_are_sound(known),
            lacks_checksums=known is None,
        )

    def _extent(self, known: SegmentChecksums | None, suspect: list[tuple[int, int]]) -> LogExtent:
        """All of the log where a checksum does not match or there is none; otherwise what was written since."""
        subject = self.subject
        summed_up = known is not None and not suspect
        return LogExtent(
            start=known.log_size_bytes if known is not None and summed_up else 0,
            end=subject.size_bytes,
            first_offset=Offset(known.end_offset) if known is not None and summed_up else subject.base_offset,
            end_offset=subject.end_offset,
            epochs=subject.epochs,
            may_have_holes=subject.may_have_holes,
            suspect=suspect,
        )

    def _indexes_are_sound(self, known: SegmentChecksums | None) -> bool:
        subject = self.subject
        if subject.is_growing:
            of_offsets, of_times = subject.stored_indexes
            return stored_match(self._disk, subject.directory, subject.base_offset, of_offsets, of_times)
        if known is None or known.log_size_bytes != subject.size_bytes:
            return subject.indexes_are_checked  # It is unknown what the files should hold.
        return indexes_match(known, self._disk, subject.directory, subject.base_offset)

    def _transactions_are_sound(self, known: SegmentChecksums | None) -> bool:
        subject = self.subject
        if known is None or known.log_size_bytes != subject.size_bytes or subject.is_growing:
            return subject.indexes_are_checked or not has_transactions(
                self._disk, subject.directory, subject.base_offset
            )
        return transactions_match(known, self._disk, subject.directory, subject.base_offset)


def begin_check(state: LogState, segment: Segment) -> SegmentCheck:
    """A check to run in a worker thread, and to note afterwards."""
    return SegmentCheck(state.disk, subject_of(state, segment))


def subject_of(state: LogState, segment: Segment) -> CheckedSegment:
    next_base = state.segments.next_base_after(segment)
    return CheckedSegment(
        segment=segment,
        directory=state.directory,
        base_offset=segment.base_offset,
        file=segment.file,
        size_bytes=segment.size_bytes,
        end_offset=state.log_end_offset if next_base is None else next_base,
        is_growing=next_base is None,
        stored_indexes=(segment.offset_index.stored_checksum, segment.time_index.stored_checksum)
        if next_base is None and segment.is_created
        else (None, None),
        indexes_are_checked=segment.indexes_are_checked,
        epochs=state.epoch_cache.entries(),
        may_have_holes=state.may_have_holes,
        truncations=state.truncations,
    )


def is_current(state: LogState, subject: CheckedSegment) -> bool:
    return state.truncations == subject.truncations and any(each is subject.segment for each in state.segments)


def note_check(state: LogState, check: SegmentCheck) -> bool:
    """Apply the result; False where it is discarded, because the log has changed meanwhile."""
    subject, report = check.subject, check.report
    assert report is not None
    if not is_current(state, subject):
        return False
    segment = subject.segment
    segment.damage = tuple(report.damage)
    segment.is_checked = True
    if report.lacks_checksums:
        segment.summed_up_bytes = 0
    segment.indexes_are_checked = not (report.indexes_are_damaged or report.transactions_are_damaged)
    if report.damage:
        segment.forget_reads()
        state.recent.forget(state.log_end_offset)
    return True


def sum_up(state: LogState, segment: Segment, end_offset: Offset) -> None:
    """Store the checksums of a segment whose files are complete, if there are none of all of it.

    Files that were never checked are not summed up: checksums of damaged files would make them seem sound.
    """
    if segment.summed_up_bytes == segment.size_bytes or segment.damage or not segment.indexes_are_checked:
        return
    known = read_checksums(state.disk, state.directory, segment.base_offset) if segment.summed_up_bytes else None
    if known is None and not segment.is_checked:
        return
    write_checksums(state.disk, _summed_log(state, segment, end_offset), known)
    segment.summed_up_bytes = segment.size_bytes


def begin_summing(state: LogState, segment: Segment) -> SummedLog | None:
    """The argument of ``write_checksums`` for a worker thread; None where no checksums are to be written."""
    end_offset = state.segments.next_base_after(segment)
    is_sound = segment.is_checked and segment.indexes_are_checked and not segment.damage
    if end_offset is None or not is_sound or segment.summed_up_bytes == segment.size_bytes:
        return None
    return _summed_log(state, segment, end_offset)


def note_summed(state: LogState, segment: Segment) -> None:
    """The checksums were stored. If another segment has taken its place since, they are not about that one."""
    current = state.segments.holding(segment.base_offset)
    if current is segment:
        segment.summed_up_bytes = segment.size_bytes
    elif current.base_offset == segment.base_offset:
        current.drop_checksums()


def _summed_log(state: LogState, segment: Segment, end_offset: Offset) -> SummedLog:
    return SummedLog(
        directory=state.directory,
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        end_offset=end_offset,
    )
