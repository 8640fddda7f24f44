"""What a partition log must hold after a crash, worked out from what was done to it, and the checks against it."""

import msgspec

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerId
from quorate.records.batch import BatchHeader, check_crc, iterate_batches
from quorate.records.control import marker_of_batch
from quorate.records.record import Record, iterate_records
from quorate.storage.log import PartitionLog
from quorate.storage.producer_state import ProducerStates
from tests.log_times import offset_for_timestamp
from tests.simulation.committed_reader import committed_records


class LoggedBatch(msgspec.Struct, frozen=True):
    header: BatchHeader
    content: bytes

    @property
    def records(self) -> list[Record]:
        return list(iterate_records(self.content))


class Transactions(msgspec.Struct, frozen=True):
    """What the markers in a row of batches say about the others, each by its base offset."""

    aborted: set[Offset]
    open: dict[ProducerId, list[Offset]]


def transactions_in(batches: list[LoggedBatch]) -> Transactions:
    found = Transactions(set(), {})
    for batch in batches:
        header = batch.header
        if header.is_control:
            ended = found.open.pop(header.producer_id, [])
            marker = marker_of_batch(batch.content)
            if marker is not None and not marker.is_commit:
                found.aborted.update(ended)
        elif header.is_transactional:
            found.open.setdefault(header.producer_id, []).append(header.base_offset)
    return found


class LogModel:
    """The history of one log. The bounds are what a crash may leave; the log itself knows what it holds now."""

    def __init__(self) -> None:
        self.batches: list[LoggedBatch] = []  # What was written, or at least begun, in order.
        self.durable_end = Offset(0)  # What is below must survive.
        self.lowest_start = Offset(0)  # The start of the log must not be below after a crash.
        self.highest_start = Offset(0)  # Nor above: nobody asked for that.
        self.cleaned_up_to = Offset(0)  # Below, records may have been compacted away.
        self.committed_up_to = Offset(0)  # Below, no truncation takes anything away, nor the end of a transaction.
        # The highest offset of each key that compaction has ever seen; it may since have been truncated.
        self.superseding: dict[bytes | None, Offset] = {}

    @property
    def begun_end(self) -> Offset:
        return self.batches[-1].header.next_offset if self.batches else self.highest_start

    @property
    def durable_batches_end(self) -> Offset:
        """Where the last durable batch ends; a log that was cut inside of a hole may end at either side of it."""
        ends = (batch.header.next_offset for batch in self.batches)
        return max((end for end in ends if end <= self.durable_end), default=Offset(0))

    def begin_append(self, content: bytes) -> None:
        """Batches as they go to the disk: from here on a crash may leave them, or a part."""
        self.batches += batches_of(content)

    def take_back(self, end: Offset) -> None:
        """The log ends at ``end``; what was begun above it never comes back."""
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= end]
        self.durable_end = min(self.durable_end, end)
        self.cleaned_up_to = min(self.cleaned_up_to, end)
        self.committed_up_to = min(self.committed_up_to, end)

    def begin_compaction(self, end: Offset) -> None:
        self.cleaned_up_to = max(self.cleaned_up_to, end)
        aborted = transactions_in(self.batches).aborted
        for batch in self.batches:
            if batch.header.next_offset > end or batch.header.is_control or batch.header.base_offset in aborted:
                continue
            for record in batch.records:
                self.superseding[record.key] = max(record.offset, self.superseding.get(record.key, record.offset))


def batches_of(content: bytes) -> list[LoggedBatch]:
    found = []
    for position, header in iterate_batches(content, strict=True):
        check_crc(content, position, header)
        found.append(LoggedBatch(header, content[position : position + header.size_bytes]))
    return found


def read_all(log: PartitionLog) -> list[LoggedBatch]:
    """Every batch from the start of the log to its end, as a consumer would fetch them."""
    batches: list[LoggedBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=700, up_to_offset=log.log_end_offset, minimum_one_batch=True)
        if not found.length:
            break
        batches += batches_of(found.read())
        assert batches[-1].header.last_offset >= offset, "a fetch that makes no progress"
        offset = batches[-1].header.next_offset
    return batches


def check_recovered(log: PartitionLog, model: LogModel) -> None:
    """Judge a log that was just recovered."""
    assert model.lowest_start <= log.log_start_offset <= model.highest_start, "the start of the log moved"
    assert log.log_end_offset >= model.durable_batches_end, "durable records are lost"
    longest = max(model.begun_end, model.durable_end, log.log_start_offset)
    assert log.log_end_offset <= longest, "the log is longer than what was written"
    assert log.synced_end_offset == log.log_end_offset
    check_content(log, model)
    check_consistent(log)
    check_transactions(log, model)


def check_transactions(log: PartitionLog, model: LogModel) -> None:
    """Whether a reader of committed records sees those, and no others, up to the first open transaction."""
    batches = [batch for batch in model.batches if batch.header.next_offset <= log.log_end_offset]
    transactions = transactions_in(batches)
    held = read_all(log)
    first_open = _first_open(transactions, held, log, model)
    starts = (entry.transaction_start for _, entry in log.producers if entry.transaction_start is not None)
    stable = min(starts, default=log.log_end_offset)
    if first_open >= log.log_start_offset:
        assert stable == first_open, "stable up to elsewhere than the first open transaction"
    shown = [
        record.offset
        for batch in held
        if not batch.header.is_control
        and batch.header.base_offset not in transactions.aborted
        and batch.header.base_offset < stable
        for record in batch.records
        if record.offset >= log.log_start_offset
    ]
    assert [record.offset for record in committed_records(log, stable, max_bytes=700)] == shown, (
        "not the committed records"
    )


def _first_open(transactions: Transactions, held: list[LoggedBatch], log: PartitionLog, model: LogModel) -> Offset:
    """The first batch of an open transaction that may be there; the end of the log where there is none.

    A log that was to be emptied when the power was cut may end inside of what was compacted: before the marker of a
    transaction of which nothing was left. Nothing is open then.
    """
    bases = {batch.header.base_offset for batch in held}
    return min(
        (
            offset
            for offsets in transactions.open.values()
            for offset in offsets
            if offset < log.log_start_offset or offset >= model.cleaned_up_to or offset in bases
        ),
        default=log.log_end_offset,
    )


def check_content(log: PartitionLog, model: LogModel) -> None:
    held = read_all(log)
    wanted = [batch for batch in model.batches if log.log_start_offset <= batch.header.last_offset < log.log_end_offset]
    cleaned_up_to = model.cleaned_up_to
    assert [batch.content for batch in held if batch.header.base_offset >= cleaned_up_to] == [
        batch.content for batch in wanted if batch.header.base_offset >= cleaned_up_to
    ], "not the batches that were written"
    if cleaned_up_to > log.log_start_offset:
        _check_compacted(held, wanted, model)


def _check_compacted(held: list[LoggedBatch], wanted: list[LoggedBatch], model: LogModel) -> None:
    """Compaction drops superseded records and old tombstones; it changes nothing and moves nothing."""
    originals = {record.offset: record for batch in wanted for record in batch.records}
    kept = {record.offset: record for batch in held for record in batch.records}
    for offset, record in kept.items():
        assert originals[offset] == record, f"the record at {offset} has changed"
    aborted = transactions_in(model.batches).aborted
    latest = {
        record.key: record.offset
        for batch in wanted
        if not batch.header.is_control and batch.header.base_offset not in aborted
        for record in batch.records
    }
    for key, offset in latest.items():
        may_go = originals[offset].value is None or model.superseding.get(key, offset) > offset
        assert offset in kept or (may_go and offset < model.cleaned_up_to), f"the latest record of {key!r} is lost"
    offsets = [batch.header.base_offset for batch in held]
    assert offsets == sorted(set(offsets)), "offsets do not rise"


def check_consistent(log: PartitionLog) -> None:
    """Whether all that the log keeps beside its batches says the same as they do."""
    held = read_all(log)
    _check_producers(log, held)
    _check_epochs(log, held)
    for segment in log.segments:
        headers = dict(segment.headers_from(0))
        for index in range(len(segment.offset_index)):
            relative, position = segment.offset_index[index]
            assert headers[position].last_offset == segment.base_offset + relative, "a wrong entry in an offset index"
        highest = max((header.max_timestamp for header in headers.values()), default=-1)
        assert segment.max_timestamp().timestamp_ms == highest, "a wrong highest timestamp"
    for batch in held:
        found = log.read(
            max(batch.header.last_offset, log.log_start_offset),
            max_bytes=1,
            up_to_offset=log.log_end_offset,
            minimum_one_batch=True,
        )
        assert found.read() == batch.content, "an offset that leads to another batch"
    _check_timestamps(log, held)


def _check_producers(log: PartitionLog, held: list[LoggedBatch]) -> None:
    replayed = ProducerStates()
    for batch in held:
        replayed.advance(batch.header, batch.header.base_offset, batch.header.max_timestamp)
    for producer_id, entry in replayed:
        known = log.producers.get(producer_id)
        assert known is not None, f"producer {producer_id} is forgotten"
        if not entry.batches:
            assert known.epoch >= entry.epoch
        elif log.config.compacts:
            # A snapshot may know a batch that was compacted away because of a later one, since truncated.
            assert known.epoch >= entry.epoch
            assert known.epoch > entry.epoch or known.batches[-1].last_offset >= entry.batches[-1].last_offset
        else:
            assert known.epoch == entry.epoch
            assert known.batches[-len(entry.batches) :] == entry.batches, f"batches of {producer_id} are forgotten"


def _check_epochs(log: PartitionLog, held: list[LoggedBatch]) -> None:
    starts: dict[LeaderEpoch, Offset] = {}
    for batch in held:
        starts.setdefault(batch.header.partition_leader_epoch, max(batch.header.base_offset, log.log_start_offset))
    entries = [entry for entry in log.epochs if entry[1] < log.log_end_offset]
    # A compacted log may have lost the first records of an epoch, so it may start before the first one that is left.
    assert [epoch for epoch, _ in entries if epoch in starts] == list(starts), "other epochs than in the batches"
    for epoch, start in entries:
        assert start <= starts.get(epoch, start)


def _check_timestamps(log: PartitionLog, held: list[LoggedBatch]) -> None:
    records = [record for batch in held for record in batch.records if record.offset >= log.log_start_offset]
    for wanted in {record.timestamp for record in records[:: max(1, len(records) // 5)]}:
        first = next(record for record in records if record.timestamp >= wanted)
        found = offset_for_timestamp(log, wanted)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (first.offset, first.timestamp), "a wrong offset for a time"
