"""A Raft driver with everything around it in the test's hand: the peers, the state machine, and each piece of work."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import msgspec

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core import messages as m
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Entry, Snapshot
from quorate.quorum.core.events import RaftEvent, Tick
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import QuorumState, Ready
from quorate.quorum.raft_driver import RaftDriver
from quorate.quorum.raft_storage import RaftStorage
from tests.simulation.disk import SimulatedDisk
from tests.unit.quorum.quorum_disk import DATA_DIR, StoppedClock

ME, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)


class HeldWork(Executor):
    """Worker threads that work when they are told to, or at once."""

    def __init__(self) -> None:
        self.is_held = False
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: function(*args, **kwargs)))
        if not self.is_held:
            self.work()
        return future

    def work(self) -> None:
        future, function = self.waiting.pop(0)
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)


class NotedStorage(RaftStorage):
    def __init__(self, disk: SimulatedDisk, journal: list[str]) -> None:
        super().__init__(disk, DATA_DIR, StoppedClock(), has_peers=lambda membership, is_whole: True)
        self._journal = journal

    def persist(self, ready: Ready) -> None:
        super().persist(ready)
        self._journal.append(f"durable {[entry.offset for entry in ready.entries]}")

    def store_snapshot(self, snapshot: Snapshot) -> None:
        super().store_snapshot(snapshot)
        self._journal.append(f"snapshot {snapshot.meta.end_offset}")

    def close(self) -> None:
        super().close()
        self._journal.append("closed")


class CountingRaftNode(RaftNode):
    ticks = 0
    is_broken = False

    def step(self, event: RaftEvent) -> None:
        self.ticks += isinstance(event, Tick)
        super().step(event)

    def ready(self) -> Ready | None:
        if self.is_broken:
            raise RuntimeError("broken")
        return super().ready()


class Payloads:
    """A state machine that only remembers."""

    def __init__(self, journal: list[str]) -> None:
        self._journal = journal
        self.applied: list[bytes] = []
        #: Where there is one, entries are applied when it is set, and not at once.
        self.applying: asyncio.Event | None = None

    def install(self, payload: bytes, end_offset: Offset) -> None:
        self._journal.append(f"installed {end_offset}")
        self.applied = msgspec.msgpack.decode(payload, type=list[bytes])

    def apply(self, snapshot: Snapshot | None, entries: Sequence[Entry]) -> "asyncio.Future[None] | None":
        if snapshot is not None:
            self.install(snapshot.payload, snapshot.meta.end_offset)
        if entries and self.applying is not None:
            return asyncio.ensure_future(self._apply_later(entries, self.applying))
        if entries:
            self._apply(entries)
        return None

    async def _apply_later(self, entries: Sequence[Entry], may_apply: asyncio.Event) -> None:
        self._journal.append(f"applying {[entry.offset for entry in entries]}")
        await may_apply.wait()
        self._apply(entries)

    def _apply(self, entries: Sequence[Entry]) -> None:
        self._journal.append(f"applied {[entry.offset for entry in entries]}")
        self.applied += [entry.payload for entry in entries if entry.payload]

    def snapshot(self) -> Callable[[], bytes]:
        return partial(msgspec.msgpack.encode, list(self.applied))


class DrivenNode:
    """Node 1 of as many voters as asked for. What it sends is kept, and goes nowhere by itself."""

    def __init__(self, disk: SimulatedDisk, *, voters: int = 1, entries_between_snapshots: int = 1_000) -> None:
        loop = asyncio.get_running_loop()
        self.journal: list[str] = []
        self.sent: list[m.Message] = []
        self.states: list[QuorumState] = []
        self.memberships: list[Membership] = []
        self.failures: list[Exception] = []
        self.executor = HeldWork()
        self.payloads = Payloads(self.journal)
        self.storage = NotedStorage(disk, self.journal)
        restored = self.storage.restore()
        if restored.snapshot is not None:
            self.payloads.install(restored.snapshot.payload, restored.snapshot.meta.end_offset)
        self.raft = CountingRaftNode(
            node_id=ME,
            config=RaftConfig(),
            jitter=lambda: 0.5,
            now_ms=round(loop.time() * 1000),
            bootstrap=Membership.of([Member(NodeId(1 + i), "", is_voter=True) for i in range(voters)]),
            hard_state=restored.hard_state,
            snapshot=restored.snapshot,
            entries=restored.entries,
        )
        self.driver = RaftDriver(
            self.raft,
            self.storage,
            self.payloads,
            loop=loop,
            executor=self.executor,
            send=self._send,
            clock=StoppedClock(),
            on_state=self.states.append,
            on_membership=self.memberships.append,
            on_failure=self.failures.append,
            on_recovered=lambda: None,
            entries_between_snapshots=entries_between_snapshots,
        )
        self.answers_heartbeats = False

    @property
    def term(self) -> Term:
        return self.driver.state.term

    def _send(self, message: m.Message) -> None:
        self.journal.append(f"sent {type(message).__name__}")
        self.sent.append(message)
        if self.answers_heartbeats and isinstance(message, m.Heartbeat):
            answer = m.HeartbeatResponse(
                term=message.term, sender=message.receiver, receiver=ME, read_round=message.read_round
            )
            asyncio.get_running_loop().call_soon(self.driver.message_received, answer)

    async def settle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def lead_alone(self) -> None:
        self.driver.start()
        while not self.driver.state.can_decide:
            await until(asyncio.get_running_loop().time() + 0.001)
        await self.settle()

    async def win_election(self) -> None:
        """With the votes of node 2, which then has the first entry of the term too."""
        for is_pre_vote in (True, False):
            while not any(isinstance(x, m.VoteRequest) and x.is_pre_vote is is_pre_vote for x in self.sent):
                await until(asyncio.get_running_loop().time() + 0.01)
            term = self.sent[-1].term
            self.driver.message_received(
                m.VoteResponse(term=term, sender=OTHER, receiver=ME, is_pre_vote=is_pre_vote, granted=True)
            )
            await self.settle()
        self.accept(1)
        await self.settle()
        assert self.driver.state.can_decide

    def accept(self, end_offset: int) -> None:
        self.driver.message_received(
            m.AppendAccepted(term=self.term, sender=OTHER, receiver=ME, match_end_offset=Offset(end_offset))
        )

    def follow(
        self, *entries: Entry, term: int, high_watermark: int = 0, previous_term: int = 0, base: int = 0
    ) -> None:
        """As if node 2, which leads, offered the entries."""
        self.driver.message_received(
            m.AppendRequest(
                term=Term(term),
                sender=OTHER,
                receiver=ME,
                base_offset=Offset(base),
                previous_term=Term(previous_term),
                high_watermark=Offset(high_watermark),
                entries=entries,
            )
        )


async def until(time: float) -> None:
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    timer = loop.call_at(time, arrived.set_result, None)
    try:
        await arrived
    finally:
        timer.cancel()
