"""Drives the Raft core: gives it messages, time and proposals, and carries out what it says, in the order it says.

One ``Ready`` is under way at a time: what must be durable is written by a worker thread, and only then are messages
sent and entries applied. Events that come meanwhile change the core's memory and show in the next one, so a slow disk
makes larger batches, not a longer queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Protocol, TypeVar, assert_never

from quorate.kernel.ids import DirectoryId, NodeId, Offset, QuorumLeader, Term
from quorate.kernel.ports import Clock
from quorate.kernel.tasks import monotonic_ms
from quorate.quorum.core import events as e
from quorate.quorum.core import outcomes as o
from quorate.quorum.core.entries import Entry, EntryKind, LogPosition, Snapshot, SnapshotMeta
from quorate.quorum.core.leader_requests import Description, MemberProgress
from quorate.quorum.core.membership import Membership, MembershipChange
from quorate.quorum.core.messages import Message
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import QuorumState, Ready
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.raft_storage import RaftStorage
from quorate.transport.peers.errors import OutcomeUnknown

T = TypeVar("T")

logger = logging.getLogger(__name__)

_ENTRIES_BETWEEN_SNAPSHOTS = 5_000


class StateMachine(Protocol):
    """What the entries add up to. All calls come from the loop, in the order of the log."""

    def apply(self, snapshot: Snapshot | None, entries: Sequence[Entry]) -> "asyncio.Future[None] | None":
        """Take the snapshot, where there is one, for everything applied so far, and then the entries.

        None where that is done when this returns; otherwise what ends when it is.
        """
        ...

    def snapshot(self) -> Callable[[], bytes]:
        """Of everything applied so far; made by the thread that writes it."""
        ...


class RaftDriver:
    def __init__(
        self,
        raft: RaftNode,
        storage: RaftStorage,
        state_machine: StateMachine,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        send: Callable[[Message], None],
        clock: Clock,
        on_state: Callable[[QuorumState], None],
        on_membership: Callable[[Membership], None],
        on_failure: Callable[[Exception], None],
        on_recovered: Callable[[], None],
        entries_between_snapshots: int | None = None,
    ) -> None:
        self._raft = raft
        self._storage = storage
        self._state_machine = state_machine
        self._loop = loop
        self._executor = executor
        self._send = send
        self._clock = clock
        self._on_state = on_state
        self._on_membership = on_membership
        self._on_failure = on_failure
        self._on_recovered = on_recovered
        self._entries_between_snapshots = entries_between_snapshots or _ENTRIES_BETWEEN_SNAPSHOTS
        self._tickets: dict[int, asyncio.Future[Offset]] = {}
        self._next_ticket = 0
        #: When each member was last heard, for those who ask how it is.
        self._heard_ms: dict[NodeId, int] = {}
        self._applied_since_snapshot = 0
        self._applied_end_offset = Offset(0)
        #: A Ready is being carried out, or one is about to be asked for.
        self._busy = False
        self._stopped = False
        #: What is to be done in the thread of the writes, before the next Ready, and who waits for it.
        self._between: deque[Callable[[], None]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._timer: Alarm | None = None

    @property
    def state(self) -> QuorumState:
        return self._raft.quorum_state

    @property
    def leader(self) -> QuorumLeader | None:
        """The quorum leader, as far as this node knows."""
        return self._raft.leader

    @property
    def membership(self) -> Membership:
        return self._raft.membership

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """The data folder that a node must have to be talked to; ``NO_DIRECTORY`` where any will do."""
        return self._raft.directory_of(node_id)

    @property
    def log_end_offset(self) -> Offset:
        return self._raft.log_end_offset

    @property
    def lost_log(self) -> LogPosition | None:
        """How far the log has to go before damage to it is made good; None where there is none."""
        return self._raft.lost_log

    def log_end_offsets(self) -> dict[NodeId, Offset]:
        """How far the leader knows each other member to have the log; nothing where this node does not lead."""
        return self._raft.match_end_offsets()

    def describe(self) -> Description:
        """How far each member has come, as the leader knows it."""
        leader = self.leader
        if leader is None:
            raise NotQuorumLeader("not the leader", None)
        matches = self._raft.match_end_offsets()
        end, now_ms = self._raft.log_end_offset, self._clock.now_ms()
        members = []
        for member in self.membership.members:
            is_self = member.node_id == leader.node_id
            match = end if is_self else matches.get(member.node_id, Offset(0))
            heard_ms = now_ms if is_self else self._heard_ms.get(member.node_id, -1)
            members.append(
                MemberProgress(
                    node_id=member.node_id,
                    is_voter=member.is_voter,
                    log_end_offset=match,
                    last_heard_ms=heard_ms,
                    last_caught_up_ms=heard_ms if match >= end else -1,
                )
            )
        return Description(leader=leader, high_watermark=self._raft.high_watermark, members=tuple(members))

    def start(self) -> None:
        self._kick()

    async def stop(self) -> None:
        """Take no more events; returns when the disk is not being written to any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._tickets.values():
            if not future.done():
                future.set_exception(OutcomeUnknown("the node stops"))
        self._tickets.clear()
        if self._busy:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def objection_to(self, message: Message) -> str | None:
        """Why no sound node can have sent the message, which is then not to be taken."""
        return self._raft.objection_to(message, self._now_ms())

    def message_received(self, message: Message) -> None:
        self._heard_ms[message.sender] = self._clock.now_ms()
        self._step(e.MessageReceived(message=message, now_ms=self._now_ms()))

    def peer_died(self, peer: NodeId) -> None:
        self._step(e.PeerDied(peer=peer, now_ms=self._now_ms()))

    def peer_reachable(self, peer: NodeId) -> None:
        self._step(e.PeerReachable(peer=peer, now_ms=self._now_ms()))

    async def propose(self, payload: bytes, term: Term) -> Offset:
        """Have the quorum agree on the payload; returns once it is applied here.

        Raises ``NotQuorumLeader`` where nothing happened and nothing will, ``OutcomeUnknown`` where nobody can tell.
        """
        return await self._ask(lambda ticket, now: e.Propose(payload=payload, ticket=ticket, term=term, now_ms=now))

    async def change_membership(self, change: MembershipChange) -> Offset:
        return await self._ask(lambda ticket, now: e.ProposeMembership(change=change, ticket=ticket, now_ms=now))

    async def read_offset(self) -> Offset:
        """Up to where an image must have come for a read that misses nothing which was agreed on before now."""
        return await self._ask(lambda ticket, now: e.ReadIndex(ticket=ticket, now_ms=now))

    async def hand_over(self, successor: NodeId) -> None:
        """Have another voter lead; returns once this node does not. ``NotQuorumLeader`` where nothing came of it."""
        await self._ask(lambda ticket, now: e.TransferLeadership(target=successor, ticket=ticket, now_ms=now))

    async def _ask(self, event: Callable[[int, int], e.RaftEvent]) -> Offset:
        if self._stopped:
            raise NotQuorumLeader("the node stops", None)
        ticket = self._next_ticket
        self._next_ticket += 1
        future: asyncio.Future[Offset] = self._loop.create_future()
        self._tickets[ticket] = future
        self._step(event(ticket, self._now_ms()))
        try:
            return await future
        finally:
            self._tickets.pop(ticket, None)
            del future  # It keeps the error that it raises, and that this frame.

    async def run_between_writes(self, work: Callable[[Sequence[Entry]], T]) -> T:
        """Work on the quorum's files, given the durable entries behind the snapshot. If it fails, so does the node."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._between.append(lambda: self._run_between_writes(work, done))
        self._kick()
        return await done

    def _run_between_writes(self, work: Callable[[Sequence[Entry]], T], done: "asyncio.Future[T]") -> None:
        def finished(ran: "asyncio.Future[T]") -> None:
            error = None if ran.cancelled() else ran.exception()
            if error is not None:
                self._fail(error)
            elif not ran.cancelled() and not done.done():
                done.set_result(ran.result())
            self._take_ready()

        self._loop.run_in_executor(self._executor, work, self._raft.saved_entries()).add_done_callback(finished)

    def _step(self, event: e.RaftEvent) -> None:
        if self._stopped:
            return
        try:
            self._raft.step(event)
        except Exception as error:
            self._fail(error)
            return
        self._kick()

    def _kick(self) -> None:
        if not self._busy and not self._stopped:
            self._busy = True
            self._loop.call_soon(self._take_ready)

    def _take_ready(self) -> None:
        """Carry out one Ready after the other, until there is none or one has to wait for the disk."""
        if self._between and not self._stopped:
            self._between.popleft()()
            return
        while True:
            try:
                ready = None if self._stopped else self._raft.ready()
                for message in () if ready is None else ready.early_messages:
                    self._send(message)
            except Exception as error:
                self._fail(error)
                ready = None
            if ready is None:
                self._rest()
                return
            if _has_writes(ready):
                written = self._loop.run_in_executor(self._executor, self._storage.persist, ready)
                written.add_done_callback(partial(self._persisted, ready))
                return
            if not self._carry_out(ready):
                return

    def _persisted(self, ready: Ready, written: "asyncio.Future[None]") -> None:
        error = None if written.cancelled() else written.exception()
        if self._stopped or written.cancelled():
            self._rest()
        elif error is not None:
            self._fail(error)
            self._rest()
        elif self._carry_out(ready):
            self._take_ready()

    def _carry_out(self, ready: Ready) -> bool:
        """All that comes after the disk. False when the node has failed, or goes on later by itself."""
        try:
            for message in ready.messages:
                self._send(message)
            has_news = ready.snapshot is not None or ready.committed
            applying = self._state_machine.apply(ready.snapshot, ready.committed) if has_news else None
        except Exception as error:
            self._fail(error)
            self._rest()
            return False
        if applying is not None:
            applying.add_done_callback(partial(self._applied_later, ready))
            return False
        return self._applied(ready)

    def _applied_later(self, ready: Ready, applying: "asyncio.Future[None]") -> None:
        error = None if applying.cancelled() else applying.exception()
        if self._stopped or applying.cancelled():
            self._rest()
        elif error is not None:
            self._fail(error)
            self._rest()
        elif self._applied(ready):
            self._take_ready()

    def _applied(self, ready: Ready) -> bool:
        """Tell who waits for it. False when the node has failed, or a snapshot is being written first."""
        try:
            if ready.snapshot is not None:
                self._applied_since_snapshot = 0
            if ready.committed:
                self._applied_since_snapshot += len(ready.committed)
                self._applied_end_offset = Offset(ready.committed[-1].offset + 1)
            self._raft.advance(ready)
            for outcome in ready.finished:
                self._finish(outcome)
            if ready.snapshot is not None or any(_has_membership(part) for part in (ready.entries, ready.committed)):
                self._on_membership(self._raft.membership)
            if ready.quorum_state is not None:
                self._on_state(ready.quorum_state)
            if ready.is_recovered:
                self._on_recovered()
            return not self._begin_snapshot()
        except Exception as error:
            self._fail(error)
            self._rest()
            return False

    def _begin_snapshot(self) -> bool:
        """Write a snapshot where one is due. Then the next Ready waits for it: both go to the same files."""
        if self._applied_since_snapshot < self._entries_between_snapshots:
            return False
        self._applied_since_snapshot = 0
        meta = self._raft.snapshot_meta(self._applied_end_offset)
        if meta is None:
            return False  # One of the leader's has come meanwhile; it is in the next Ready.
        stored = self._loop.run_in_executor(self._executor, self._store_snapshot, meta, self._state_machine.snapshot())
        stored.add_done_callback(self._snapshot_stored)
        return True

    def _store_snapshot(self, meta: SnapshotMeta, encode: Callable[[], bytes]) -> Snapshot:
        snapshot = Snapshot(meta, encode())
        self._storage.store_snapshot(snapshot)
        return snapshot

    def _snapshot_stored(self, stored: "asyncio.Future[Snapshot]") -> None:
        error = None if stored.cancelled() else stored.exception()
        if self._stopped or stored.cancelled():
            self._rest()
        elif error is not None:
            self._fail(error)
            self._rest()
        else:
            self._step(e.Compact(snapshot=stored.result(), now_ms=self._now_ms()))
            self._take_ready()

    def _finish(self, outcome: o.Outcome) -> None:
        future = self._tickets.get(outcome.ticket)
        if future is None or future.done():
            return
        match outcome:
            case o.ProposalAccepted():
                return
            case o.ProposalCommitted(offset=offset) | o.ReadReady(offset=offset):
                future.set_result(offset)
            case o.Refused(reason=reason, leader=leader):
                future.set_exception(NotQuorumLeader(reason, leader))
            case o.ProposalLost():
                future.set_exception(NotQuorumLeader("another leader came first", self.leader))
            case o.ProposalUncertain():
                future.set_exception(OutcomeUnknown("a snapshot took the place of the log"))
            case o.TransferFinished(stepped_down=True):
                future.set_result(self._applied_end_offset)
            case o.TransferFinished():
                future.set_exception(NotQuorumLeader("the successor did not take over", self.leader))
            case _:
                assert_never(outcome)

    def _rest(self) -> None:
        self._busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        self._arm()

    def _arm(self) -> None:
        """Wake at the core's next deadline. A timer that is too early is left to fire: most deadlines only move on."""
        deadline_ms = self._raft.next_deadline_ms
        if self._stopped or deadline_ms is None:
            return
        when = deadline_ms / 1000
        if self._timer is not None:
            if self._timer.due_s <= when:
                return
            self._timer.cancel()
        self._timer = Alarm(self._loop, when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        deadline_ms = self._raft.next_deadline_ms
        now_ms = self._now_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._step(e.Tick(now_ms=now_ms))
        if not self._busy:
            self._arm()

    def _fail(self, error: BaseException) -> None:
        """Going on without the disk, or against an invariant, could lose what was agreed on.

        Nobody is answered any more: those who wait are told by ``stop`` that the outcome is unknown.
        """
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._on_failure(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _now_ms(self) -> int:
        return monotonic_ms(self._loop)


def _has_writes(ready: Ready) -> bool:
    return ready.hard_state is not None or ready.snapshot is not None or bool(ready.entries) or ready.is_recovered


def _has_membership(entries: Sequence[Entry]) -> bool:
    return any(entry.kind is EntryKind.MEMBERSHIP for entry in entries)


class Alarm:
    """A timer that knows when it is due. Those of a loop need not: uvloop's do not where that is at once."""

    __slots__ = ("_handle", "due_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, due_s: float, callback: Callable[[], None]) -> None:
        """``due_s`` is a time of the loop; one that has passed means at once."""
        self.due_s = due_s
        self._handle = loop.call_at(due_s, callback)

    def cancel(self) -> None:
        self._handle.cancel()
