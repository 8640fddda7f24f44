"""What a node of the quorum keeps on its disk: the log of entries, its vote, and the newest snapshot.

The log is a partition log like any other: an entry is a record in a batch of its own, so that it can be truncated by
itself, the batch's leader epoch is the entry's term, and the record's key says what kind of entry it is. Term and vote
are in ``quorum-state``, the snapshot in ``quorum-snapshot``, each replaced as a whole, with its CRC-32C in a last line.
A node that finds any of it damaged does not start: it would vote twice, or know of other leaders than the rest. Only
after a crash the log is cut off at the first entry that is not whole, like every log. Nor does it start where something
is missing that it has acknowledged (``lost_knowledge``).

All methods block. They are called one after the other, from a worker thread once the node runs.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
from crc32c import crc32c

from quorate.broker.partition_folders import partition_index
from quorate.broker.quorum.acknowledged import Acknowledged, AcknowledgedFile
from quorate.broker.quorum.identity import has_joined, mark_joined
from quorate.broker.quorum.lost_knowledge import Evidence, MemberFiles, find_missing_knowledge, find_missing_log
from quorate.kernel.clock import Clock
from quorate.kernel.disk import Disk
from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import LeaderEpoch, Offset, Term
from quorate.raft.entries import NO_TERM, Entry, EntryKind, HardState, Snapshot
from quorate.raft.ready import Ready
from quorate.records.batch import check_crc, iterate_batches
from quorate.records.builder import build_batch
from quorate.records.errors import CorruptBatch
from quorate.records.record import Record, iterate_records
from quorate.storage.config import NO_LIMIT, LogConfig
from quorate.storage.log import PartitionLog

T = TypeVar("T")

#: No topic's partition can have a folder of this name (``broker.partition_folders``).
LOG_DIRECTORY = "metadata-log"
#: Where earlier versions kept it.
_OLD_LOG_DIRECTORY = "__cluster_metadata-0"
_CONFIG = LogConfig(retention_ms=NO_LIMIT, max_message_bytes=2**31 - 1, segment_bytes=64 << 20)
_READ_BYTES = 1 << 20
_CRC_LINE = b"\n%08x\n"
_CRC_LINE_BYTES = len(_CRC_LINE % 0)


class RestoredQuorum(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knew when it last stopped, however it stopped."""

    hard_state: HardState
    snapshot: Snapshot | None
    #: Those after the snapshot.
    entries: tuple[Entry, ...]


class RaftStorage:
    def __init__(self, disk: Disk, data_dir: str, clock: Clock) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._clock = clock
        self._files = MemberFiles(
            log=f"{data_dir}/{LOG_DIRECTORY}", state=f"{data_dir}/quorum-state", snapshot=f"{data_dir}/quorum-snapshot"
        )
        _move_old_log(disk, data_dir)
        self._acknowledged_file = AcknowledgedFile(disk, data_dir)
        self._evidence = self._look_for_evidence()
        _refuse(find_missing_log(self._evidence, self._files))
        self._log = PartitionLog.open(disk, self._files.log, _CONFIG)
        disk.sync_directory(data_dir)  # From now on a folder that is missing was taken away.
        self._acknowledged = self._evidence.acknowledged or Acknowledged()
        self._term = NO_TERM if self._evidence.hard_state is None else self._evidence.hard_state.term

    def restore(self) -> RestoredQuorum:
        evidence, log = self._evidence, self._log
        start = Offset(0) if evidence.snapshot is None else evidence.snapshot.meta.end_offset
        try:
            entries = tuple(self._entries_from(max(start, log.log_start_offset)))
        except CorruptBatch as error:
            raise _damaged(log.directory, str(error)) from None
        _refuse(find_missing_knowledge(evidence, self._files, log.log_start_offset, entries))
        if log.log_end_offset < start:
            # The snapshot was installed, and the stop came before the log could follow.
            log.truncate_fully_and_start_at(start)
        hard_state = evidence.hard_state or HardState()
        return RestoredQuorum(hard_state=hard_state, snapshot=evidence.snapshot, entries=entries)

    def persist(self, ready: Ready) -> None:
        """Make durable what the quorum asks for; nothing that depends on it may be sent before this returns."""
        if ready.hard_state is not None:
            self._replace(self._files.state, msgspec.json.encode(ready.hard_state))
            self._term = ready.hard_state.term
        if ready.snapshot is not None:
            self._install(ready.snapshot)
        if ready.entries:
            self._append(ready.entries)
        if ready.snapshot is not None or ready.entries:
            self._note_acknowledged(ready)

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of what has been applied; the entries that it stands for may go."""
        self._acknowledged_file.sync()
        self._replace(self._files.snapshot, msgspec.msgpack.encode(snapshot))
        self._log.delete_records_before(snapshot.meta.end_offset)

    def close(self) -> None:
        # A disk that fails now or failed before: the next start recovers what is there.
        with suppress(KafkaError, OSError):
            self._log.close()
            self._acknowledged_file.sync()
        self._acknowledged_file.close()

    def _look_for_evidence(self) -> Evidence:
        names = self._disk.list_directory(self._data_dir)
        return Evidence(
            has_log_folder=LOG_DIRECTORY in names,
            hard_state=self._read(self._files.state, msgspec.json.Decoder(HardState)),
            snapshot=self._read(self._files.snapshot, msgspec.msgpack.Decoder(Snapshot)),
            acknowledged=self._acknowledged_file.read(),
            has_joined=has_joined(self._disk, self._data_dir),
            has_partitions=any(partition_index(name) is not None for name in names),
        )

    def _install(self, snapshot: Snapshot) -> None:
        end_offset = snapshot.meta.end_offset
        # Entries beyond its end contradict it, else it would not be installed. After a crash between these lines they
        # would be taken for its continuation.
        self._truncate(end_offset)
        self._replace(self._files.snapshot, msgspec.msgpack.encode(snapshot))
        self._log.truncate_fully_and_start_at(end_offset)

    def _truncate(self, end_offset: Offset) -> None:
        """Give up what conflicts with the leader's log. What is committed never does, in one and the same cluster."""
        if end_offset >= self._log.log_end_offset:
            return
        if end_offset < self._acknowledged.committed_offset:
            raise QuorateError(
                f"from offset {end_offset} on the quorum's metadata is not what this node knows to be committed: other "
                "nodes have lost theirs and formed a cluster anew; stop them, and see docs/missing-files.md"
            )
        if end_offset < self._acknowledged.end_offset:
            self._acknowledged = msgspec.structs.replace(self._acknowledged, end_offset=end_offset, last_term=NO_TERM)
            self._acknowledged_file.replace(self._acknowledged)
        self._log.truncate_to(end_offset)

    def _note_acknowledged(self, ready: Ready) -> None:
        is_first = self._acknowledged.end_offset == 0
        end_offset, committed = self._log.log_end_offset, self._acknowledged.committed_offset
        if ready.snapshot is not None:
            committed = max(committed, ready.snapshot.meta.end_offset)
        if ready.committed:
            committed = max(committed, Offset(ready.committed[-1].offset + 1))
        last_term = ready.entries[-1].term if ready.entries else NO_TERM
        self._acknowledged = Acknowledged(
            end_offset=end_offset, last_term=last_term, committed_offset=min(committed, end_offset), term=self._term
        )
        self._acknowledged_file.note(self._acknowledged)
        if is_first:
            mark_joined(self._disk, self._data_dir)

    def _append(self, entries: Sequence[Entry]) -> None:
        self._truncate(entries[0].offset)
        now_ms = self._clock.now_ms()
        self._log.append_as_follower(b"".join(_batch(entry, now_ms) for entry in entries))
        self._log.sync()

    def _entries_from(self, offset: Offset) -> Iterable[Entry]:
        end = self._log.log_end_offset
        while offset < end:
            data = self._log.read(offset, max_bytes=_READ_BYTES, up_to_offset=end, minimum_one_batch=True).read()
            for position, header in iterate_batches(data, strict=True):
                check_crc(data, position, header)
                (record,) = iterate_records(data, position)
                offset = Offset(header.next_offset)
                yield Entry(
                    Offset(header.base_offset),
                    Term(header.partition_leader_epoch),
                    EntryKind((record.key or b"\0")[0]),
                    record.value or b"",
                )

    def _replace(self, path: str, content: bytes) -> None:
        self._disk.replace(path, content + _CRC_LINE % crc32c(content))

    def _read(self, path: str, decoder: "msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T]") -> T | None:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return None
        try:
            stored = file.read(0, file.size())
        finally:
            file.close()
        content = stored[:-_CRC_LINE_BYTES]
        if stored[-_CRC_LINE_BYTES:] != _CRC_LINE % crc32c(content):
            raise _damaged(path, "its last line is not the CRC-32C of what stands before it")
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise _damaged(path, str(error)) from None


def _refuse(sentence: str | None) -> None:
    if sentence is not None:
        raise QuorateError(sentence)


def _move_old_log(disk: Disk, data_dir: str) -> None:
    names = disk.list_directory(data_dir)
    if _OLD_LOG_DIRECTORY not in names:
        return
    if LOG_DIRECTORY in names:
        raise QuorateError(
            f"{data_dir} has two metadata logs, {LOG_DIRECTORY} and {_OLD_LOG_DIRECTORY}, as an earlier version has "
            "run here since: keep the one that this node is to go on with, and move the other out of the data folder"
        )
    disk.rename(f"{data_dir}/{_OLD_LOG_DIRECTORY}", f"{data_dir}/{LOG_DIRECTORY}")
    disk.sync_directory(data_dir)


def _damaged(path: str, why: str) -> QuorateError:
    return QuorateError(f"{path} is damaged ({why}): restore it, or remove this node and add it anew")


def _batch(entry: Entry, now_ms: int) -> bytes:
    record = Record(offset=entry.offset, timestamp=now_ms, key=bytes([entry.kind]), value=entry.payload, headers=())
    return build_batch([record], base_offset=entry.offset, leader_epoch=LeaderEpoch(entry.term))
