"""A disk that keeps what was made durable of each Ready before a crash, and no more."""

from random import Random

from quorate.kernel.ids import Offset
from quorate.quorum.core.entries import Entry, HardState, LogPosition, Snapshot
from quorate.quorum.core.ready import Ready


class SimulatedDisk:
    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        #: How far the log went of which damage took a part, until that is there again.
        self.lost_log: LogPosition | None = None

    @property
    def log_end_offset(self) -> Offset:
        if self.entries:
            return Offset(self.entries[-1].offset + 1)
        return self.snapshot.meta.end_offset if self.snapshot else Offset(0)

    @property
    def end(self) -> LogPosition:
        if self.entries:
            return LogPosition(self.entries[-1].term, self.log_end_offset)
        meta = self.snapshot.meta if self.snapshot else None
        return LogPosition() if meta is None else LogPosition(meta.last_term, meta.end_offset)

    def damage(self, kept_entries: int, *, keeps_snapshot: bool = True) -> None:
        """Only the first entries can still be read, or with the snapshot nothing at all."""
        self.lost_log = max(self.end, self.lost_log or LogPosition())
        if not keeps_snapshot:
            self.snapshot = None
        starts_at_zero = self.snapshot is not None or (self.entries and self.entries[0].offset == 0)
        self.entries = self.entries[: kept_entries if starts_at_zero else 0]
        if self.snapshot is not None and self.log_end_offset < self.snapshot.meta.end_offset:
            self.entries = []

    def persist(self, ready: Ready) -> None:
        self._persist_steps(ready, steps=3, entries=len(ready.entries))

    def persist_part(self, ready: Ready, random: Random) -> None:
        """What a crash leaves of a Ready whose writes were under way."""
        self._persist_steps(ready, steps=random.randint(0, 3), entries=random.randint(0, len(ready.entries)))

    def save_snapshot(self, snapshot: Snapshot, *, trim: bool) -> None:
        self.snapshot = snapshot
        if trim:
            self.entries = [entry for entry in self.entries if entry.offset >= snapshot.meta.end_offset]

    def _persist_steps(self, ready: Ready, steps: int, entries: int) -> None:
        if steps >= 1 and ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if steps >= 2 and ready.snapshot is not None:
            self.snapshot, self.entries = ready.snapshot, []
        if steps >= 3 and ready.entries:
            first_offset = ready.entries[0].offset
            assert first_offset <= self.log_end_offset, "a hole in the log"
            self.entries = [entry for entry in self.entries if entry.offset < first_offset]
            self.entries += ready.entries[:entries]
        if steps >= 3 and entries == len(ready.entries) and ready.is_recovered:
            self.lost_log = None
