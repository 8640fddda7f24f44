"""What a node of the quorum keeps on its disk: the log of entries, its vote, and the newest snapshot.

The log is a partition log like any other: an entry is a record in a batch of its own, so that it can be truncated by
itself, the batch's leader epoch is the entry's term, and the record's key says what the entry is. Term and vote are in
``quorum-state``, the snapshot in ``quorum-snapshot``, each replaced as a whole (``quorum_files``).

At a start every byte of these is checked. What is damaged is set aside or made anew, and where a part of the log is
lost the node recovers: ``quorum-recovery`` says so until the log is as far as it was (``recovery_plan``). A node does
not start where something is missing that it has acknowledged (``lost_knowledge``). After a crash the log is cut off
behind what was acknowledged, at the first entry that is not whole, like every log.

All methods block. They are called one after the other, from a worker thread once the node runs.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import Offset, Term
from quorate.kernel.ports import Clock, Disk
from quorate.quorum.acknowledged import FILE_NAME as ACKNOWLEDGED
from quorate.quorum.acknowledged import Acknowledged, AcknowledgedFile
from quorate.quorum.core.entries import NO_TERM, Entry, EntryKind, HardState, LogPosition, Snapshot
from quorate.quorum.core.lost_knowledge import Evidence, MemberFiles, find_missing_log
from quorate.quorum.core.membership import Membership, decode_membership
from quorate.quorum.core.ready import Ready
from quorate.quorum.doubled_file import Finding
from quorate.quorum.identity import FILE_NAME as IDENTITY
from quorate.quorum.identity import check_identity, has_joined, mark_joined
from quorate.quorum.log_scan import ScannedLog, encode_entry, scan_log
from quorate.quorum.quorum_files import QuorumFiles
from quorate.quorum.recovery_plan import RecoveryPlan, plan_recovery
from quorate.quorum.watched_disk import WatchedDisk
from quorate.storage.config import NO_LIMIT, LogConfig
from quorate.storage.file_names import CHECKSUMS, OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, offset_of
from quorate.storage.log import PartitionLog
from quorate.storage.partition_folders import partition_index

#: No topic's partition can have a folder of this name (``storage.partition_folders``).
LOG_DIRECTORY = "metadata-log"
#: What is put behind the name of a damaged file or folder. The latest one is kept.
DAMAGED_SUFFIX = ".damaged"
#: Where earlier versions kept it.
_OLD_LOG_DIRECTORY = "__cluster_metadata-0"
#: Segments are small, as each start reads all of them.
_CONFIG = LogConfig(retention_ms=NO_LIMIT, max_message_bytes=2**31 - 1, segment_bytes=8 << 20)
#: What can be told from the ``.log`` files is made anew from them at each start, and never believed.
_DERIVED = (OFFSET_INDEX, TIME_INDEX, CHECKSUMS, PRODUCER_SNAPSHOT)

#: Whether other nodes can have what this one loses, by the latest membership that is known, of a log that is whole or
#: not.
HasPeers = Callable[[Membership | None, bool], bool]


class RestoredQuorum(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knew when it last stopped, however it stopped."""

    hard_state: HardState
    snapshot: Snapshot | None
    #: Those after the snapshot.
    entries: tuple[Entry, ...]
    #: How far the log went of which damage has taken a part.
    lost_log: LogPosition | None = None


class RaftStorage:
    def __init__(self, disk: Disk, data_dir: str, clock: Clock, has_peers: HasPeers) -> None:
        # From the moment on that a file has been checked.
        self._disk = disk = WatchedDisk(disk)
        self._data_dir = data_dir
        self._clock = clock
        self._small_files = QuorumFiles(disk, data_dir)
        self._files = MemberFiles(
            log=f"{data_dir}/{LOG_DIRECTORY}",
            state=self._small_files.state_path,
            snapshot=self._small_files.snapshot_path,
            acknowledged=f"{data_dir}/{ACKNOWLEDGED}",
            recovery=self._small_files.recovery_path,
        )
        _move_old_log(disk, data_dir)
        self._acknowledged_file = AcknowledgedFile(disk, data_dir)
        evidence = self._look_for_evidence()
        _refuse(find_missing_log(evidence, self._files))
        scan = scan_log(disk, self._files.log)
        has_any = has_peers(_latest_membership(evidence.snapshot, scan), scan.problem is None)
        self._plan = plan_recovery(evidence, scan, self._files, has_peers=has_any)
        _refuse(self._plan.refusal)
        self._hard_state, self._snapshot = self._plan.hard_state, self._plan.snapshot
        self._acknowledged = evidence.acknowledged or self._acknowledged_by_log()
        self._has_joined = evidence.has_joined
        self._lost_log = self._plan.lost_log
        self._log = self._carry_out(self._plan)
        for path in (self._files.state, self._files.snapshot, self._files.acknowledged, self._files.recovery):
            disk.watch(path)
        disk.sync_directory(data_dir)  # From now on a folder that is missing was taken away.

    @property
    def log_path(self) -> str:
        return self._files.log

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was damaged when the node started."""
        return self._plan.findings

    def restore(self) -> RestoredQuorum:
        plan = self._plan
        return RestoredQuorum(
            hard_state=plan.hard_state, snapshot=plan.snapshot, entries=plan.entries, lost_log=plan.lost_log
        )

    def persist(self, ready: Ready) -> None:
        """Make durable what the quorum asks for; nothing that depends on it may be sent before this returns."""
        if ready.hard_state is not None:
            self._small_files.write_state(ready.hard_state)
            self._hard_state = ready.hard_state
        if ready.snapshot is not None:
            self._install(ready.snapshot)
        if ready.entries:
            self._append(ready.entries)
        if ready.snapshot is not None or ready.entries:
            self._note_acknowledged(ready)
        elif ready.hard_state is not None:
            # So that the term is known even where the vote should become unreadable.
            self._acknowledged = msgspec.structs.replace(self._acknowledged, term=self._hard_state.term)
            self._acknowledged_file.note(self._acknowledged)
        if ready.is_recovered:
            # What it says counts again, alone: it has to be durable.
            self._acknowledged_file.replace(self._acknowledged)
            self._end_recovery()
            self._lost_log = None

    def store_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of what has been applied; the entries that it stands for may go."""
        self._acknowledged_file.sync()
        self._small_files.write_snapshot(snapshot)
        self._snapshot = snapshot
        self._log.delete_records_before(snapshot.meta.end_offset)

    @property
    def watched_paths(self) -> list[str]:
        """Every file that is there to be checked while the node runs."""
        return [*self._disk.paths, f"{self._data_dir}/{IDENTITY}"]

    def check_file(self, path: str, entries: Sequence[Entry]) -> Finding | None:
        """Whether it is as it was written; if not it is made anew, the log with these entries, which it had."""
        if path == f"{self._data_dir}/{IDENTITY}":
            return check_identity(self._disk, self._data_dir)
        if self._disk.is_as_written(path):
            return None
        if path == self._files.state:
            self._small_files.write_state(self._hard_state)
        elif path == self._files.snapshot and self._snapshot is not None:
            self._small_files.write_snapshot(self._snapshot)
        elif path == self._files.acknowledged:
            self._acknowledged_file.replace(self._acknowledged)
        elif path == self._files.recovery and self._lost_log is not None:
            self._small_files.write_mark(self._lost_log)
        elif path.startswith(f"{self._files.log}/"):
            self._rewrite_log(entries)
        return Finding(path=path, problem="it is not as it was written any more", is_repaired=True)

    def _rewrite_log(self, entries: Sequence[Entry]) -> None:
        """From memory. A crash in the middle of it is one that loses entries to damage."""
        start = Offset(0) if self._snapshot is None else self._snapshot.meta.end_offset
        held = [entry for entry in entries if entry.offset >= start]
        acknowledged = LogPosition(self._acknowledged.last_term, self._acknowledged.end_offset)
        self._small_files.write_mark(max(acknowledged, self._lost_log or acknowledged))
        self._log.release()
        self._set_aside(self._files.log)
        self._log = self._open_log()
        self._fill(self._log, start, held)
        self._disk.sync_directory(self._data_dir)
        if self._lost_log is None:
            self._end_recovery()

    def close(self) -> None:
        # A disk that fails now or failed before: the next start recovers what is there.
        with suppress(KafkaError, OSError):
            self._log.close()
            self._acknowledged_file.sync()
        self._acknowledged_file.close()

    def _look_for_evidence(self) -> Evidence:
        names = self._disk.list_directory(self._data_dir)
        hard_state, state_copy = self._small_files.read_state()
        snapshot, snapshot_copy = self._small_files.read_snapshot()
        mark, mark_copy = self._small_files.read_mark()
        acknowledged = self._acknowledged_file.read()
        return Evidence(
            has_log_folder=LOG_DIRECTORY in names,
            hard_state=hard_state,
            state_copy=state_copy,
            snapshot=snapshot,
            snapshot_copy=snapshot_copy,
            acknowledged=acknowledged.last,
            acknowledged_is_damaged=acknowledged.is_damaged,
            acknowledged_is_torn=acknowledged.is_torn,
            acknowledged_may_be_later=acknowledged.may_be_later,
            mark=mark,
            mark_copy=mark_copy,
            has_joined=has_joined(self._disk, self._data_dir),
            has_partitions=any(partition_index(name) is not None for name in names),
        )

    def _carry_out(self, plan: RecoveryPlan) -> PartitionLog:
        """Repair what is damaged. The mark comes first: a crash in the middle must not let this node vote early."""
        if plan.writes_state:
            self._small_files.write_state(plan.hard_state)
        if plan.lost_log is not None or plan.rewrites_log:
            self._small_files.write_mark(plan.lost_log or plan.log_end)
        if plan.sets_snapshot_aside:
            self._set_aside(self._files.snapshot)
        if plan.rewrites_log:
            self._set_aside(self._files.log)
        log = self._open_log()
        if plan.rewrites_log:
            self._fill(log, plan.start, plan.entries)
        elif log.log_end_offset < plan.start:
            # The snapshot was installed, and the stop came before the log could follow.
            log.truncate_fully_and_start_at(plan.start)
        if plan.rewrites_acknowledged:
            self._acknowledged_file.replace(self._acknowledged)
        if plan.rewrites_log and plan.lost_log is None:
            self._end_recovery()
        return log

    def _acknowledged_by_log(self) -> Acknowledged:
        end = self._plan.log_end
        return Acknowledged(end_offset=end.end_offset, last_term=end.last_term, term=self._hard_state.term)

    def _open_log(self) -> PartitionLog:
        for name in self._disk.list_directory(self._files.log):
            if any(offset_of(name, suffix) is not None for suffix in _DERIVED):
                self._disk.remove(f"{self._files.log}/{name}")
        return PartitionLog.open(self._disk, self._files.log, _CONFIG)

    def _fill(self, log: PartitionLog, start: Offset, entries: Sequence[Entry]) -> None:
        if start > 0:
            log.truncate_fully_and_start_at(start)
        if entries:
            self._append_to(log, entries)

    def _set_aside(self, path: str) -> None:
        aside = path + DAMAGED_SUFFIX
        self._disk.remove_tree(aside)
        self._disk.remove(aside)
        with suppress(FileNotFoundError):
            self._disk.rename(path, aside)
        self._disk.sync_directory(self._data_dir)

    def _end_recovery(self) -> None:
        self._disk.remove(self._files.recovery)
        self._disk.sync_directory(self._data_dir)

    def _install(self, snapshot: Snapshot) -> None:
        end_offset = snapshot.meta.end_offset
        # Entries beyond its end contradict it, else it would not be installed. After a crash between these lines they
        # would be taken for its continuation.
        self._truncate(end_offset)
        self._small_files.write_snapshot(snapshot)
        self._snapshot = snapshot
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
            last_term = self._term_before(end_offset)
            self._acknowledged = msgspec.structs.replace(self._acknowledged, end_offset=end_offset, last_term=last_term)
            self._acknowledged_file.replace(self._acknowledged)
        self._log.truncate_to(end_offset)

    def _term_before(self, offset: Offset) -> Term:
        """NO_TERM where the entry before it is in the snapshot."""
        epochs = [epoch for epoch, start in self._log.epochs if start < offset]
        return Term(epochs[-1]) if epochs else NO_TERM

    def _note_acknowledged(self, ready: Ready) -> None:
        end_offset, committed = self._log.log_end_offset, self._acknowledged.committed_offset
        last_term = NO_TERM
        if ready.snapshot is not None:
            committed = max(committed, ready.snapshot.meta.end_offset)
            last_term = ready.snapshot.meta.last_term
        if ready.committed:
            committed = max(committed, Offset(ready.committed[-1].offset + 1))
        if ready.entries:
            last_term = ready.entries[-1].term
        self._acknowledged = Acknowledged(
            end_offset=end_offset,
            last_term=last_term,
            committed_offset=min(committed, end_offset),
            term=self._hard_state.term,
        )
        self._acknowledged_file.note(self._acknowledged)
        if not self._has_joined:
            mark_joined(self._disk, self._data_dir)
            self._has_joined = True

    def _append(self, entries: Sequence[Entry]) -> None:
        self._truncate(entries[0].offset)
        self._append_to(self._log, entries)

    def _append_to(self, log: PartitionLog, entries: Sequence[Entry]) -> None:
        now_ms, durable_end = self._clock.now_ms(), log.log_end_offset
        log.append_as_follower(b"".join(encode_entry(entry, durable_end, now_ms) for entry in entries))
        log.sync()


def _latest_membership(snapshot: Snapshot | None, scan: ScannedLog) -> Membership | None:
    for entry in reversed(scan.entries):
        if entry.kind is EntryKind.MEMBERSHIP:
            return decode_membership(entry.payload)
    return None if snapshot is None else snapshot.meta.membership


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
