"""Repairing the damaged files of a segment: from what is sound of them, and from another replica.

``plan_repair`` and ``install_repair`` belong to the loop's thread, ``repair`` to a worker's. It reads through handles
of its own and writes only files that the log does not know yet. A log that has damage is written again, whole, and
takes the place of the old one as a compacted segment does; its sound batches stay as they are, byte for byte. Damaged
indexes are made from the log, and aborted transactions by replaying it.

``Replacement`` judges the batches of another replica. An epoch has one leader, which assigns an offset once: a batch of
the right offset and epoch, whose CRC is right, is the one that was here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer, Disk, DiskFile
from quorate.records.batch import check_crc, read_batches
from quorate.records.errors import CorruptBatch
from quorate.storage.appending import roll
from quorate.storage.batch_scan import scan_headers
from quorate.storage.checkpoints import EpochStart
from quorate.storage.damage import DamagedRange, epoch_at, sound_parts
from quorate.storage.file_names import CHECKSUMS, CLEANED, OFFSET_INDEX, TIME_INDEX, path_of
from quorate.storage.producer_snapshots import rebuild_producers
from quorate.storage.segment import LoggedBatch, Segment, Segments
from quorate.storage.segment_checks import CheckedSegment, SegmentReport, is_current, subject_of
from quorate.storage.segment_checksums import SummedLog, write_checksums
from quorate.storage.state import LogState, changes_log
from quorate.storage.swap import swap_in

_COPY_BYTES = 1 << 20


class FilePart(NamedTuple):
    file: DiskFile
    start: int
    end: int


class RepairPlan(msgspec.Struct, frozen=True, kw_only=True):
    subject: CheckedSegment
    index_interval_bytes: int
    damage: tuple[DamagedRange, ...]
    makes_transactions: bool
    #: Base offset and size of every segment up to this one, from which aborted transactions can be found again.
    earlier: tuple[tuple[Offset, int], ...]


class RepairedSegment(msgspec.Struct, frozen=True, kw_only=True):
    plan: RepairPlan
    made: Segment
    #: Whether the log file was written again, or only the indexes.
    has_log: bool


def plan_repair(state: LogState, segment: Segment, report: SegmentReport) -> RepairPlan:
    """The plan for ``repair``, which runs in a worker thread.

    The active segment is rolled first: a segment must not grow while it is repaired.
    """
    if segment is state.segments.active:
        roll(state)
    return RepairPlan(
        subject=subject_of(state, segment),
        index_interval_bytes=state.config.index_interval_bytes,
        damage=segment.damage,
        makes_transactions=report.transactions_are_damaged,
        earlier=tuple(
            (each.base_offset, each.size_bytes) for each in state.segments if each.base_offset <= segment.base_offset
        ),
    )


def repair(disk: Disk, plan: RepairPlan, replacements: Sequence[FilePart] | None) -> RepairedSegment:
    """Make everything aside, durably; ``replacements`` hold the batches that belong in each damaged range, in order.

    Without them only the indexes are made, from the sound batches of the log; damaged ranges stay damaged.
    """
    subject = plan.subject
    has_log = bool(plan.damage) and replacements is not None
    made = Segment(disk, subject.directory, subject.base_offset, is_new=True, suffix=CLEANED)
    made.remove()  # An earlier attempt may have left it.
    if has_log:
        made.create()
        for piece in _pieces(plan, replacements or ()):
            _copy(plan, made, piece)
    else:
        for start, end in sound_parts(0, subject.size_bytes, plan.damage):
            for position, header in scan_headers(subject.file, start, end):
                made.note(LoggedBatch.of(header), position, plan.index_interval_bytes)
    if plan.makes_transactions:
        _find_aborted(disk, plan)
    made.seal()
    made.offset_index.file.sync()
    made.time_index.file.sync()
    if has_log:
        made.file.sync()
        write_checksums(disk, _summed(subject, made))
    return RepairedSegment(plan=plan, made=made, has_log=has_log)


@changes_log
def install_repair(state: LogState, repaired: RepairedSegment) -> bool:
    """Put what was made in place; False where the log has changed so that it does not fit any more."""
    subject = repaired.plan.subject
    if not is_current(state, subject):
        repaired.made.remove()
        return False
    if repaired.has_log:
        swap_in(state, repaired.made, [subject.segment])
    else:
        _install_indexes(state, repaired)
    state.recent.forget(state.log_end_offset)
    if not state.producers_are_complete and not any(segment.damage for segment in state.segments):
        producers = rebuild_producers(
            state.disk, state.directory, state.segments, snapshot_up_to=state.durability.recovery_point
        )
        producers.open_transactions.adopt_ended(state.producers.open_transactions, state.log_end_offset)
        state.producers = producers
        state.producers_are_complete = True
    return True


def _pieces(plan: RepairPlan, replacements: Sequence[FilePart]) -> list[FilePart]:
    """Ranges of the old log, and the replacements between them."""
    old = plan.subject.file
    pieces: list[FilePart] = []
    position = 0
    for damaged, replacement in zip(plan.damage, replacements, strict=True):
        pieces += [FilePart(old, start, end) for start, end in sound_parts(position, damaged.start, ())]
        pieces.append(replacement)
        position = damaged.end
    return [*pieces, *(FilePart(old, start, end) for start, end in sound_parts(position, plan.subject.size_bytes, ()))]


def _copy(plan: RepairPlan, made: Segment, piece: FilePart) -> None:
    file, start, end = piece
    for position in range(start, end, _COPY_BYTES):
        made.file.append([file.read(position, min(_COPY_BYTES, end - position))])
    for _, header in scan_headers(file, start, end):
        made.note(LoggedBatch.of(header), made.size_bytes, plan.index_interval_bytes)


def _find_aborted(disk: Disk, plan: RepairPlan) -> None:
    """Replay the log up to the end of the segment; its index is replaced in one step."""
    segments = []
    for base_offset, size_bytes in plan.earlier:
        segment = Segment(disk, plan.subject.directory, base_offset, is_new=False)
        segment.size_bytes = size_bytes
        segments.append(segment)
    target = segments[-1]
    target.transaction_index.forget()
    rebuild_producers(disk, plan.subject.directory, Segments(segments), snapshot_up_to=plan.subject.base_offset)
    target.transaction_index.replace()


def _install_indexes(state: LogState, repaired: RepairedSegment) -> None:
    subject, directory = repaired.plan.subject, state.directory
    old = subject.segment
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        state.disk.rename(
            path_of(directory, subject.base_offset, suffix + CLEANED), path_of(directory, subject.base_offset, suffix)
        )
    state.disk.remove(path_of(directory, subject.base_offset, CHECKSUMS))
    state.disk.sync_directory(directory)
    new = Segment(state.disk, directory, subject.base_offset, is_new=False)
    new.size_bytes = old.size_bytes
    new.damage = old.damage
    new.is_sealed = True
    old.release()
    repaired.made.release()
    state.segments.replace([old], [new])


def _summed(subject: CheckedSegment, made: Segment) -> SummedLog:
    return SummedLog(
        directory=subject.directory,
        base_offset=subject.base_offset,
        size_bytes=made.size_bytes,
        end_offset=subject.end_offset,
        suffix=CLEANED,
    )


class Replacement:
    """Collects the batches of one damaged range, in order."""

    def __init__(self, damaged: DamagedRange, epochs: Sequence[EpochStart], *, may_have_holes: bool) -> None:
        self._damaged = damaged
        self._epochs = epochs
        self._may_have_holes = may_have_holes
        #: The offset that has to come next.
        self.next_offset = damaged.first_offset

    def take(self, records: Buffer) -> memoryview:
        """The batches among these that belong in the range; ``CorruptBatch`` where they cannot be what was there."""
        view = memoryview(records)
        first, end = len(view), 0
        for position, header in read_batches(view):
            check_crc(view, position, header)
            if header.next_offset <= self._damaged.first_offset or header.base_offset >= self._damaged.end_offset:
                continue  # A slice starts with the batch that holds its first offset.
            expected = epoch_at(self._epochs, header.base_offset)
            if expected is not None and header.partition_leader_epoch != expected:
                raise CorruptBatch(f"offset {header.base_offset} was written in epoch {expected} here")
            follows = (
                header.base_offset >= self.next_offset
                if self._may_have_holes
                else (header.base_offset == self.next_offset)
            )
            if not follows or header.next_offset > self._damaged.end_offset:
                raise CorruptBatch(f"a batch of offset {header.base_offset} where {self.next_offset} is next")
            first = min(first, position)
            end = position + header.size_bytes
            self.next_offset = header.next_offset
        return view[first:end]

    @property
    def is_complete(self) -> bool:
        return self.next_offset >= self._damaged.end_offset

    def end(self) -> None:
        """The other replica has no more of the range; ``CorruptBatch`` where batches are missing."""
        if not self.is_complete and not self._may_have_holes:
            raise CorruptBatch(f"the records from {self.next_offset} on are not there")
        self.next_offset = Offset(max(self.next_offset, self._damaged.end_offset))
