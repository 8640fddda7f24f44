"""Judges of a history: each names the promise that it watches."""

from quorate.kernel.ids import LeaderEpoch, NodeId
from tests.unit.replication.core.memory_log import MemoryLog, Record


class BrokenPromise(AssertionError):
    pass


class Checkers:
    def __init__(self, min_insync_replicas: int, *, requires_sync: bool) -> None:
        self._min_insync_replicas = min_insync_replicas
        self._requires_sync = requires_sync
        #: Everything that was ever below a watermark that somebody showed.
        self.committed: dict[int, Record] = {}
        self.committed_end = 0
        self._leaders: dict[LeaderEpoch, tuple[NodeId, int]] = {}
        self._ended: set[str] = set()

    def one_leader_per_epoch(self, epoch: LeaderEpoch, node: NodeId, life: int) -> None:
        if self._leaders.setdefault(epoch, (node, life)) != (node, life):
            raise BrokenPromise(f"epoch {epoch} is led by {self._leaders[epoch]} and by {(node, life)}")

    def watermark_shown(self, node: NodeId, log: MemoryLog, old: int, new: int) -> None:
        """One offset holds one record for ever, whoever shows it; watermarks do not move back or past the log."""
        if new < old or new > log.end:
            raise BrokenPromise(f"node {node} moved its watermark from {old} to {new}, its log ends at {log.end}")
        for offset in range(max(old, log.start), new):
            record = log.at(offset)
            if self.committed.setdefault(offset, record) != record:
                raise BrokenPromise(f"node {node} shows {record} at {offset}, once it was {self.committed[offset]}")
        self.committed_end = max(self.committed_end, new)

    def in_sync_replicas_have_everything(self, isr: dict[NodeId, MemoryLog]) -> None:
        """Whoever may be elected has all that was ever shown or acknowledged, where a power cut leaves it."""
        for node, log in isr.items():
            end = log.synced_end if self._requires_sync else log.end
            if end < self.committed_end:
                raise BrokenPromise(f"node {node} is in sync with {end} records safe of {self.committed_end} committed")
            for offset in range(log.start, self.committed_end):
                if offset in self.committed and log.at(offset) != self.committed[offset]:
                    raise BrokenPromise(
                        f"node {node} is in sync with {log.at(offset)} at {offset}, not {self.committed[offset]}"
                    )

    def write_ended_once(self, write: str) -> None:
        if write in self._ended:
            raise BrokenPromise(f"{write} ended twice")
        self._ended.add(write)

    def acknowledged_write_is_safe(self, offset: int, record: Record, logs: list[MemoryLog], lost: int) -> None:
        """``min.insync.replicas`` disks have it, counting those that were lost since."""
        if self.committed.get(offset) != record:
            raise BrokenPromise(f"{record} was acknowledged at {offset} and is not committed")
        holders = sum(1 for log in logs if self._holds(log, offset, record))
        if holders + lost < self._min_insync_replicas:
            raise BrokenPromise(f"{record} was acknowledged with {holders} copies")

    def _holds(self, log: MemoryLog, offset: int, record: Record) -> bool:
        end = log.synced_end if self._requires_sync else log.end
        return offset < log.start or (offset < end and log.at(offset) == record)
