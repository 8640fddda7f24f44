"""Random work on one partition log over a disk that loses power, with the model of what must survive."""

from random import Random

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import read_header
from quorate.records.builder import FIRST_OFFSET, build_batch
from quorate.records.control import EndTransactionMarker, TransactionEnd, build_end_transaction_marker
from quorate.records.record import Record
from quorate.storage.cleaner import clean
from quorate.storage.config import LogConfig
from quorate.storage.file_names import parent_of
from quorate.storage.log import PartitionLog
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.simulation.log_model import (
    LoggedBatch,
    LogModel,
    batches_of,
    check_consistent,
    check_content,
    check_recovered,
    check_transactions,
)

DIRECTORY = "/data/topic-0"
_TRANSACTIONAL = (4, 5)  # The ids of transactional producers.


class LogWorkload:
    """Runs until its power is cut a given number of times, judging the log after each recovery."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        self.disk.make_directory(parent_of(DIRECTORY))
        self.disk.sync_directory("/")
        self.model = LogModel()
        self.now_ms = 1_700_000_000_000
        self.epoch = LeaderEpoch(0)
        self.config = self._random_config()
        self.keys = self.random.choice([3, 10])
        self.log = PartitionLog.open(self.disk, DIRECTORY, self.config)

    def run(self, power_cuts: int) -> None:
        for _ in range(power_cuts):
            self.disk.steps_until_power_cut = self.random.randint(1, 150)
            try:
                while True:
                    self._do_something()
            except PowerCutError:
                self._recover()

    def _random_config(self) -> LogConfig:
        random = self.random
        return LogConfig(
            segment_bytes=random.choice([1200, 4000, 20000]),
            index_interval_bytes=random.choice([0, 300, 2000]),
            retention_ms=random.choice([-1, 20_000]),
            retention_bytes=random.choice([-1, -1, 6000]),
            message_timestamp_after_max_ms=1 << 50,
            cleanup_policy=random.choice(
                [frozenset({"delete"}), frozenset({"compact"}), frozenset({"compact", "delete"})]
            ),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=random.choice([0, 5_000]),
        )

    def _do_something(self) -> None:
        self.now_ms += self.random.choice([1, 10, 1000])
        operations = {
            self._append: 30,
            self._append_idempotent: 20,
            self._append_transactional: 14,
            self._end_transaction: 8,
            self._retry: 8,
            self._append_to_full_disk: 2,
            self._replicate: 8,
            self._sync: 12,
            self._sync_while_working: 5,
            self._change_leader: 2,
            self._retain: 3,
            self._truncate: 2,
            self._start_anew: 1,
            self._delete_records: 2,
            self._compact: 8,
            self._reopen: 2,
            self._kill: 2,
            self._look: 1,
        }
        (operation,) = self.random.choices(list(operations), list(operations.values()))
        operation()

    def _recover(self) -> None:
        while True:
            self.disk.crash()
            self.disk.free_bytes = 1 << 40
            if self.random.random() < 0.3:
                self.disk.steps_until_power_cut = self.random.randint(1, 12)
            try:
                self.log = PartitionLog.open(self.disk, DIRECTORY, self.config)
                break
            except PowerCutError:
                continue
        self.disk.steps_until_power_cut = None
        check_recovered(self.log, self.model)
        self._adopt()
        if self.random.random() < 0.2:
            self._recover()  # What recovery leaves must be as durable as it says.

    def _adopt(self) -> None:
        """The recovered log is the truth from here on, and all of it is durable."""
        model, log = self.model, self.log
        model.take_back(log.log_end_offset)
        model.durable_end = log.log_end_offset
        model.lowest_start = model.highest_start = log.log_start_offset
        self.epoch = max(self.epoch, log.latest_epoch)

    def _append(self) -> None:
        self._append_batch(self._batch(ProducerId(-1), ProducerEpoch(-1), -1))

    def _append_idempotent(self) -> None:
        producer_id = ProducerId(self.random.randint(1, 3))
        known = self.log.producers.get(producer_id)
        epoch, sequence = (known.epoch, known.last_sequence + 1) if known else (ProducerEpoch(0), 0)
        if known and self.random.random() < 0.05:
            epoch, sequence = ProducerEpoch(epoch + 1), 0
        self._append_batch(self._batch(producer_id, epoch, sequence))

    def _append_transactional(self) -> None:
        producer_id = ProducerId(self.random.choice(_TRANSACTIONAL))
        known = self.log.producers.get(producer_id)
        epoch, sequence = (known.epoch, known.last_sequence + 1) if known else (ProducerEpoch(0), 0)
        self._append_batch(self._batch(producer_id, epoch, sequence, is_transactional=True))

    def _end_transaction(self) -> None:
        """With the epoch of the records, or with the next one, as coordinators do from transaction version 2 on."""
        producer_id = ProducerId(self.random.choice(_TRANSACTIONAL))
        known = self.log.producers.get(producer_id)
        if known is None:
            return
        end = TransactionEnd(
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(known.epoch + self.random.choice([0, 1])),
            marker=EndTransactionMarker(is_commit=self.random.random() < 0.5, coordinator_epoch=0),
        )
        content = build_end_transaction_marker(
            end.marker,
            producer_id=producer_id,
            producer_epoch=end.producer_epoch,
            timestamp_ms=self.now_ms,
            base_offset=self.log.log_end_offset,
            leader_epoch=self.epoch,
        )
        try:
            self.log.append_marker(end, leader_epoch=self.epoch, now_ms=self.now_ms)
        finally:
            self.model.begin_append(content)

    def _append_batch(self, batch: bytes) -> None:
        buffer = bytearray(batch)
        end = self.log.log_end_offset
        try:
            info = self.log.append_as_leader(
                memoryview(buffer), [read_header(batch)], leader_epoch=self.epoch, now_ms=self.now_ms
            )
        finally:
            # The buffer has its offset before the disk sees it, so this is what a power cut may have left.
            self.model.begin_append(bytes(buffer))
        assert not info.duplicate
        assert info.base_offset == end

    def _append_to_full_disk(self) -> None:
        self.disk.free_bytes = self.random.randint(0, 70)  # Less than the smallest batch.
        end, size = self.log.log_end_offset, self.log.size_bytes
        code = None
        try:
            self._append()
        except KafkaError as error:
            code = error.code
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        self.disk.free_bytes = 1 << 40
        assert (self.log.log_end_offset, self.log.size_bytes) == (end, size)
        self.model.take_back(end)
        check_content(self.log, self.model)

    def _retry(self) -> None:
        """A producer sends one of its last batches again and gets the answer of the first time."""
        known = self._batches_of_producers()
        if not known:
            return
        original = self.random.choice(known)
        info = self.log.append_as_leader(
            memoryview(bytearray(original.content)), [original.header], leader_epoch=self.epoch, now_ms=self.now_ms
        )
        assert info.duplicate
        assert info.base_offset == original.header.base_offset

    def _batches_of_producers(self) -> list[LoggedBatch]:
        last_offsets = {batch.last_offset for _, entry in self.log.producers for batch in entry.batches}
        return [batch for batch in self.model.batches if batch.header.last_offset in last_offsets]

    def _replicate(self) -> None:
        """Batches as they come from a leader, with their offsets, several at once, perhaps with a hole before them."""
        base = self.log.log_end_offset
        if self.config.compacts:
            base = Offset(base + self.random.choice([0, 0, 3]))
        content = b""
        for _ in range(self.random.randint(1, 3)):
            batch = self._batch(ProducerId(-1), ProducerEpoch(-1), -1, base_offset=base)
            base = batches_of(batch)[0].header.next_offset
            content += batch
        self.model.begin_append(content)
        self.log.append_as_follower(content)

    def _sync(self) -> None:
        self.log.sync()
        assert self.log.synced_end_offset == self.log.log_end_offset
        self.model.durable_end = self.log.synced_end_offset

    def _sync_while_working(self) -> None:
        """The loop goes on appending, and may truncate, while another thread waits for the disk."""

        def work() -> None:
            self.disk.while_syncing = lambda: None
            self.random.choice([self._append, self._append_idempotent, self._truncate])()

        begun_with = self.log.log_end_offset
        self.disk.while_syncing = work
        self.log.sync()
        self.disk.while_syncing = lambda: None
        assert self.log.synced_end_offset >= min(begun_with, self.log.log_end_offset)
        self.model.durable_end = self.log.synced_end_offset

    def _change_leader(self) -> None:
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.log.assign_epoch_start(self.epoch)

    def _retain(self) -> None:
        self.now_ms += self.random.choice([0, 10_000])
        self.model.highest_start = self.log.log_end_offset
        self.log.apply_retention(self.now_ms)
        self.model.lowest_start = self.model.highest_start = self.log.log_start_offset

    def _truncate(self) -> None:
        """Only what is not committed is truncated, and only what is committed was compacted."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        floor = max(start, end - 30, self.model.cleaned_up_to, self.model.committed_up_to)
        offset = Offset(self.random.randint(floor, end))
        holder = next((batch for batch in self.model.batches if batch.header.last_offset >= offset), None)
        new_end = min(offset, holder.header.base_offset) if holder else offset
        self.model.durable_end = min(self.model.durable_end, new_end)
        self.log.truncate_to(offset)
        self.model.take_back(self.log.log_end_offset)

    def _start_anew(self) -> None:
        offset = Offset(self.random.randint(self.log.log_start_offset, self.log.log_end_offset + 20))
        self.model.durable_end = min(self.model.durable_end, offset)
        self.model.lowest_start = min(self.model.lowest_start, offset)
        self.model.highest_start = max(self.model.highest_start, offset)
        self.log.truncate_fully_and_start_at(offset)
        self.model.batches = []
        self.model.cleaned_up_to = self.model.committed_up_to = Offset(0)
        self.model.durable_end = self.model.lowest_start = self.model.highest_start = offset

    def _delete_records(self) -> None:
        offset = Offset(self.random.randint(self.log.log_start_offset, self.log.log_end_offset))
        self.model.highest_start = max(self.model.highest_start, offset)
        self.log.delete_records_before(offset)
        self.model.lowest_start = self.model.highest_start = self.log.log_start_offset

    def _compact(self) -> None:
        """Another thread compacts while the loop may append, delete and truncate."""
        self.model.committed_up_to = max(self.model.committed_up_to, self.model.durable_end)
        self.log.commit_transactions_up_to(self.model.committed_up_to)
        plan = self.log.plan_cleaning(self.now_ms)
        if plan is None:
            return
        cleaned = clean(self.disk, plan, max_keys=self.random.choice([3, 1000]))
        if self.random.random() < 0.3:
            self.random.choice([self._append, self._retain, self._truncate, self._delete_records])()
        self.model.begin_compaction(min(plan.sources[-1].end_offset, self.log.log_end_offset))
        if self.random.random() < 0.3:
            self.disk.steps_until_power_cut = self.random.randint(1, 25)  # Few rounds, so more cuts for each.
        self.log.install(cleaned)

    def _reopen(self) -> None:
        self.log.close()
        self.model.durable_end = self.log.log_end_offset
        end = self.log.log_end_offset
        self.log = PartitionLog.open(self.disk, DIRECTORY, self.config)
        assert self.log.log_end_offset == end
        assert self.log.recovery.reason is None
        assert self.log.recovery.scanned_from == end, "a log that was closed needs no scan"

    def _kill(self) -> None:
        """The process dies and the machine does not: nothing is lost, and recovery makes all of it durable."""
        end = self.log.log_end_offset
        self.log = PartitionLog.open(self.disk, DIRECTORY, self.config)
        # A log that was cut inside of a hole may end at either side of it.
        assert self.log.log_end_offset in (end, max(self.model.begun_end, self.log.log_start_offset))
        assert self.log.synced_end_offset == self.log.log_end_offset
        assert self.log.recovery.reason is None
        self.model.durable_end = self.log.log_end_offset

    def _look(self) -> None:
        check_content(self.log, self.model)
        check_consistent(self.log)
        check_transactions(self.log, self.model)

    def _batch(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: int,
        base_offset: Offset = FIRST_OFFSET,
        *,
        is_transactional: bool = False,
    ) -> bytes:
        random = self.random
        records = [
            Record(
                offset=Offset(base_offset + delta),
                timestamp=self.now_ms - random.choice([0, 0, 500]) + delta,
                key=b"key-%d" % random.randrange(self.keys),
                value=None if random.random() < 0.15 else random.randbytes(random.choice([5, 40, 150])),
            )
            for delta in range(random.randint(1, 4))
        ]
        return build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
