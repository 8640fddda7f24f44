"""The power is cut between and inside all that the quorum writes: what was durable stays, and nothing is made up."""

from collections.abc import Callable
from random import Random

import msgspec

from quorate.kernel.ids import Offset, Term
from quorate.quorum.core.entries import Entry, HardState, Snapshot
from quorate.quorum.core.log import RaftLog
from quorate.quorum.raft_storage import RaftStorage, RestoredQuorum
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.unit.quorum.quorum_disk import MEMBERSHIP, entry, new_disk, open_storage, ready, snapshot

SEEDS = range(150)
ROUNDS = 6


class Model(msgspec.Struct, frozen=True):
    """What is on the disk for sure; entries before the snapshot's end may be gone."""

    hard_state: HardState = HardState()
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()

    @property
    def start(self) -> Offset:
        return self.entries[0].offset if self.entries else self.end

    @property
    def end(self) -> Offset:
        if self.entries:
            return Offset(self.entries[-1].offset + 1)
        return Offset(0) if self.snapshot is None else self.snapshot.meta.end_offset

    @property
    def last_term(self) -> Term:
        return self.entries[-1].term if self.entries else self.snapshot.meta.last_term if self.snapshot else Term(0)

    def up_to(self, offset: int) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.offset < offset)

    def visible(self) -> tuple[Entry, ...]:
        start = 0 if self.snapshot is None else self.snapshot.meta.end_offset
        return tuple(e for e in self.entries if e.offset >= start)


class Workload:
    """What a Raft node asks its disk for: mostly entries, now and then conflicting ones, and snapshots."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.model = Model()
        #: What the one that is under way leads to.
        self.next = Model()
        #: Entries below this are the same before and after.
        self.kept_up_to = 0

    def step(self, storage: RaftStorage) -> None:
        self._plan()(storage)
        self.model = self.next

    def _plan(self) -> Callable[[RaftStorage], None]:
        kind = self._random.choice(["append", "append", "conflict", "vote", "own snapshot", "leader's snapshot"])
        model, term = self.model, self.model.hard_state.term
        self.kept_up_to = model.end
        floor = 0 if model.snapshot is None else model.snapshot.meta.end_offset
        match kind:
            case "own snapshot" if model.visible():
                last = self._random.choice(model.visible())
                taken = snapshot(last.offset + 1, last.term)
                self.next = msgspec.structs.replace(model, snapshot=taken)
                return lambda storage: storage.store_snapshot(taken)
            case "leader's snapshot":
                # It contradicts what is here, or there is nothing at its end; it may well end before the log does.
                end = self._random.randint(floor + 1, model.end + 3)
                installed = snapshot(end, term + 1)
                after = self._new_entries(end, term + 1, self._random.randint(0, 2))
                self.next = Model(HardState(Term(term + 1)), installed, after)
                self.kept_up_to = min(end, model.end)
                return lambda storage: storage.persist(ready(term=term + 1, installed=installed, entries=after))
            case "vote":
                vote = self._random.randint(1, 5)
                self.next = msgspec.structs.replace(model, hard_state=ready(term=term + 1, vote=vote).hard_state)
                return lambda storage: storage.persist(ready(term=term + 1, vote=vote))
            case "conflict" if model.visible():
                self.kept_up_to = self._random.choice(model.visible()).offset
        new = self._new_entries(self.kept_up_to, term + 1, self._random.randint(1, 4))
        entries = (*model.up_to(self.kept_up_to), *new)
        self.next = msgspec.structs.replace(model, hard_state=HardState(Term(term + 1)), entries=entries)
        return lambda storage: storage.persist(ready(term=term + 1, entries=new))

    def _new_entries(self, start: int, term: int, count: int) -> tuple[Entry, ...]:
        return tuple(
            entry(start + i, term, self._random.randbytes(self._random.choice([1, 50, 2_000]))) for i in range(count)
        )

    def check(self, restored: RestoredQuorum) -> None:
        """Either all of what was durable before, or what has come in its place."""
        before, after = self.model, self.next
        assert restored.hard_state in (before.hard_state, after.hard_state)
        assert restored.snapshot in (before.snapshot, after.snapshot)
        RaftLog(restored.snapshot, restored.entries, MEMBERSHIP)
        start = 0 if restored.snapshot is None else restored.snapshot.meta.end_offset
        kept = tuple(e for e in before.up_to(self.kept_up_to) if e.offset >= start)
        found = restored.entries
        assert found[: len(kept)] == kept
        tail = found[len(kept) :]
        new = tuple(e for e in after.entries if e.offset >= max(start, self.kept_up_to))
        old = tuple(e for e in before.entries if e.offset >= max(start, self.kept_up_to))
        assert tail in (new[: len(tail)], old[: len(tail)])
        if restored.snapshot != before.snapshot and after.up_to(start) == ():
            assert tail == new[: len(tail)], "entries that contradict the snapshot"
        self.model = self.next = Model(restored.hard_state, restored.snapshot, found)


def run(seed: int) -> None:
    random = Random(seed)
    disk, workload = new_disk(seed), Workload(random)
    for _ in range(ROUNDS):
        storage = open_storage(disk)
        restored = storage.restore()
        assert restored.entries == workload.model.visible()
        cut_short(disk, storage, workload, random)
        disk.crash()
        workload.check(restore_despite_cuts(disk, random))


def cut_short(disk: SimulatedDisk, storage: RaftStorage, workload: Workload, random: Random) -> None:
    disk.steps_until_power_cut = random.randint(1, 60)
    try:
        for _ in range(random.randint(1, 12)):
            workload.step(storage)
    except PowerCutError:
        pass


def restore_despite_cuts(disk: SimulatedDisk, random: Random) -> RestoredQuorum:
    disk.steps_until_power_cut = random.randint(1, 20)
    try:
        return open_storage(disk).restore()
    except PowerCutError:
        disk.crash()
        return open_storage(disk).restore()
    finally:
        disk.steps_until_power_cut = None


def test_a_power_cut_at_any_point_loses_nothing_that_was_durable() -> None:
    for seed in SEEDS:
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_a_crash_between_a_leaders_snapshot_and_the_log_leaves_no_entries_that_contradict_it() -> None:
    for steps in range(1, 40):
        disk = new_disk(steps)
        storage = open_storage(disk)
        storage.persist(ready(term=2, entries=[entry(offset, 2) for offset in range(10)]))
        disk.steps_until_power_cut = steps
        try:
            storage.persist(ready(term=5, installed=snapshot(6, 5)))
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        restored = open_storage(disk).restore()
        RaftLog(restored.snapshot, restored.entries, MEMBERSHIP)
        if restored.snapshot is not None:
            assert restored.entries == ()
