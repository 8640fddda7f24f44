"""What the quorum leader does for the cluster: decides commands, watches over the brokers, changes the membership.

All of it starts when this node has won the quorum and applied everything agreed on before, and ends when it loses it.

Commands are decided on the image that shows everything decided before, one batch after the other: what arrives while
a batch is being agreed on makes the next batch. A decision about many partitions is made by a worker, as the image that
it is made on never changes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Protocol, assert_never

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, Offset, QuorumLeader, Term
from quorate.kernel.tasks import TaskScope, logged_failures, monotonic_ms
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_commands, encode_outcomes
from quorate.metadata.core.commands import Command
from quorate.metadata.core.controller import Controller, cost_of
from quorate.metadata.core.decisions import Outcomes
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.records import AnyRecord
from quorate.metadata.store import MetadataStore
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.membership import ChangeRefusal, DemoteVoter, MembershipChange, PromoteLearner, RemoveMember
from quorate.quorum.entry_payload import encode_records
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.raft_driver import Alarm, RaftDriver
from quorate.quorum.upkeep import MembershipUpkeep
from quorate.transport.peers.errors import OutcomeUnknown

logger = logging.getLogger(__name__)

#: How long what has arrived, and this node's own heartbeat, may take to be heard.
_HEARING_S = 0.05
#: A timer that is so late shows that this process was frozen or starved.
_AWAY_S = 0.1
#: How often this node's own session is looked at before it ends. What a process tells itself takes turns of its loop,
#: each as long as a starved machine makes it; between two looks there are two turns at least.
_OWN_LOOKS = 10
#: The broker has started anew, or was unregistered, since the decision was made.
_STALE_DECISION = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})
#: Decided on the loop at most, some milliseconds.
DECIDED_AT_ONCE = 300


class Neighbours(Protocol):
    def is_refusing(self, node_id: NodeId) -> bool:
        """Whether no process listens where the node used to."""
        ...


class Predecessor(msgspec.Struct, frozen=True):
    """The quorum leader before this one, and when it was last heard, by the loop's clock."""

    node_id: NodeId
    last_heard_ms: int


class Leadership:
    def __init__(
        self,
        node_id: NodeId,
        cluster_id: str,
        controller: Controller,
        store: QuorumMetadataStore,
        driver: RaftDriver,
        *,
        neighbours: Neighbours,
        session_timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
    ) -> None:
        self._executor = executor
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._controller = controller
        self._store = store
        self._driver = driver
        self._neighbours = neighbours
        self._loop = loop
        self._sessions = BrokerSessions(session_timeout_ms)
        self._own_looks = 0
        self._active: ActiveController | None = None
        self._timer: Alarm | None = None
        self._tasks = TaskScope(loop, logged_failures(logger, "decision of the controller"))
        self._upkeep = MembershipUpkeep(driver, lambda: store.image, lambda: self._active is not None, loop)
        store.subscribe(self._metadata_changed)

    @property
    def current(self) -> QuorumLeader | None:
        """The leadership that this node holds; None while it does not."""
        return None if self._active is None else self._active.leadership

    def begin(self, leadership: QuorumLeader, predecessor: Predecessor | None = None) -> None:
        """Take over the cluster as the image shows it.

        Everybody has a whole session to find the new leader, except for its predecessor: that one has been silent
        since before the election.
        """
        self.end()
        logger.info("controller active node=%s term=%s", self._node_id, leadership.term)
        driver = self._driver
        self._active = ActiveController(
            leadership,
            self._controller,
            self._store,
            propose=driver.propose,
            confirm=driver.read_offset,
            loop=self._loop,
            executor=self._executor,
        )
        image = self._store.image
        if not image.cluster_id:
            self._tasks.spawn(self._submit(c.FormCluster(cluster_id=self._cluster_id)))
        self._sessions.begin(image.brokers, self._now_ms())
        if predecessor is not None and predecessor.node_id in image.brokers:
            self._sessions.heard(predecessor.node_id, predecessor.last_heard_ms)
        for broker in image.live_brokers:  # One that is fenced may just be coming back.
            if self._neighbours.is_refusing(broker.node_id):
                self.broker_died(broker.node_id)
        self._watch_sessions()
        self._upkeep.look()

    def end(self) -> None:
        if self._active is None:
            return
        logger.info("controller inactive node=%s term=%s", self._node_id, self._active.leadership.term)
        self._active.resign()
        self._active = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        self.end()
        self._upkeep.stop()
        self._tasks.cancel_all()

    def broker_died(self, node_id: NodeId) -> None:
        """The broker's process has ended: no need to wait for its session to end too."""
        if self._active is not None and node_id != self._node_id:
            self._tasks.spawn(self._fence(node_id, "its process died"))

    async def answer(self, request: q.LeaderRequest) -> q.LeaderAnswer:
        """Raises ``NotQuorumLeader`` where nothing was done."""
        active = self._active
        if active is None:
            raise NotQuorumLeader("not the leader", self._driver.leader)
        match request:
            case q.Submit(commands=commands, validate_only=validate_only):
                return await self._carry_out(active, decode_commands(commands), validate_only=validate_only)
            case q.BrokerHeartbeat():
                return await self._heartbeat(active, request)
            case q.Promote(node_id=node_id):
                return await self._change_membership(PromoteLearner(node_id))
            case q.Remove(node_id=node_id):
                return await self._change_membership(self._removal(node_id))
            case q.Describe():
                return self._driver.describe()
            case _:
                assert_never(request)

    async def _carry_out(
        self, active: "ActiveController", commands: Sequence[c.Command], *, validate_only: bool
    ) -> q.Submitted:
        done = await active.submit(commands, validate_only=validate_only)
        for command in commands:
            if isinstance(command, c.RegisterBroker):
                # Should it never be heard again, what waits for it must not wait for ever.
                self._sessions.heard(command.node_id, self._now_ms())
                self._watch_sessions()
        return q.Submitted(outcomes=encode_outcomes(done.outcomes, done.version))

    async def _heartbeat(self, active: "ActiveController", beat: q.BrokerHeartbeat) -> q.HeartbeatAnswer:
        broker = self._store.image.brokers.get(beat.node_id)
        if broker is None:
            # One that was deposed may not have heard of the broker yet.
            await self._driver.read_offset()
            return q.HeartbeatAnswer(is_removed=True)
        if broker.broker_epoch != beat.broker_epoch:
            return q.HeartbeatAnswer(is_superseded=broker.broker_epoch > beat.broker_epoch)
        self._sessions.heard(beat.node_id, self._now_ms())
        self._watch_sessions()
        if beat.has_room != broker.has_room:
            logger.info("broker room changed node=%s has_room=%s", beat.node_id, beat.has_room)
            await self._submit(
                c.ChangeBrokerRoom(node_id=beat.node_id, broker_epoch=beat.broker_epoch, has_room=beat.has_room)
            )
        if beat.wants_to_stop:
            # If leadership ends first, the broker must not stop: it asks the next leader.
            await active.submit([c.BeginControlledShutdown(node_id=beat.node_id, broker_epoch=beat.broker_epoch)])
            return q.HeartbeatAnswer(may_stop=self._store.image.leader_count(beat.node_id) == 0)
        # Epochs of brokers that registered in one batch run ahead of the versions.
        if broker.fenced and beat.metadata_version >= min(beat.broker_epoch, self._store.image.version):
            await self._submit(c.UnfenceBroker(node_id=beat.node_id, broker_epoch=beat.broker_epoch))
        return q.HeartbeatAnswer()

    def _removal(self, node_id: NodeId) -> MembershipChange:
        """A broker must hear of every change, so it leaves the quorum only when it is unregistered."""
        return DemoteVoter(node_id) if node_id in self._store.image.brokers else RemoveMember(node_id)

    async def _change_membership(self, change: MembershipChange) -> q.LeaderAnswer:
        try:
            await self._driver.change_membership(change)
        except NotQuorumLeader as refused:
            if isinstance(refused.reason, ChangeRefusal):
                return q.ChangeRefused(reason=str(refused.reason))
            raise
        logger.info("membership changed node=%s change=%s", self._node_id, change)
        return q.Done()

    async def _fence(self, node_id: NodeId, reason: str) -> None:
        """Also where it is fenced already: it may have died before it was unfenced, and partitions wait for it."""
        broker = self._store.image.brokers.get(node_id)
        if broker is None:
            return
        if broker.is_live:
            logger.warning("broker fenced node=%s reason=%s", node_id, reason)
        await self._submit(c.FenceBroker(node_id=node_id, broker_epoch=broker.broker_epoch))

    async def _submit(self, command: c.Command) -> None:
        """Carry out a decision of the leader's own; if leadership ends first, the next leader decides anew."""
        if self._active is None:
            return
        try:
            (outcome,) = (await self._active.submit([command])).outcomes
        except (NotQuorumLeader, OutcomeUnknown):
            return
        if isinstance(outcome, KafkaError) and outcome.code not in _STALE_DECISION:
            logger.error("controller command refused command=%s error=%s", command, outcome)

    def _watch_sessions(self) -> None:
        deadline_ms = self._sessions.next_deadline_ms
        if self._active is None or deadline_ms is None or self._timer is not None:
            return  # A timer looks again when it fires: deadlines only move on.
        # What was due before anybody looked does not make this timer late.
        self._timer = Alarm(self._loop, max(deadline_ms / 1000, self._loop.time()), self._session_due)

    def _session_due(self) -> None:
        """A session's time is up. Where this process itself was frozen or starved, heartbeats wait to be heard.

        It may have been away for any part of the session, and for as long as this timer is late: so that long, and a
        moment, is what a broker has before it is taken for silent.
        """
        assert self._timer is not None
        now_s = self._loop.time()
        late_s = now_s - self._timer.due_s
        self._timer = Alarm(self._loop, now_s + late_s + _HEARING_S, self._end_sessions)

    def _end_sessions(self) -> None:
        assert self._timer is not None
        if self._loop.time() - self._timer.due_s > _AWAY_S:
            self._session_due()
            return
        self._timer = None
        for node_id in self._silent():
            self._sessions.ended(node_id)
            self._tasks.spawn(self._fence(node_id, "its session ended"))
        self._watch_sessions()

    def _silent(self) -> list[NodeId]:
        expired = self._sessions.expired(self._now_ms())
        self._own_looks = self._own_looks + 1 if self._node_id in expired else 0
        return [node for node in expired if node != self._node_id or self._own_looks >= _OWN_LOOKS]

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002
        if delta.changed_brokers:
            self._upkeep.look()

    def _now_ms(self) -> int:
        return monotonic_ms(self._loop)


class BrokerSessions:
    """A broker is alive while its last heartbeat is younger than the session time-out."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._last_heard_ms: dict[NodeId, int] = {}

    def begin(self, brokers: Iterable[NodeId], now_ms: int) -> None:
        """A new controller gives everybody a whole session to find it."""
        self._last_heard_ms = dict.fromkeys(brokers, now_ms)

    def heard(self, broker: NodeId, now_ms: int) -> None:
        self._last_heard_ms[broker] = now_ms

    def ended(self, broker: NodeId) -> None:
        self._last_heard_ms.pop(broker, None)

    def expired(self, now_ms: int) -> list[NodeId]:
        return [node for node, heard in self._last_heard_ms.items() if now_ms - heard >= self._session_timeout_ms]

    @property
    def next_deadline_ms(self) -> int | None:
        if not self._last_heard_ms:
            return None
        return min(self._last_heard_ms.values()) + self._session_timeout_ms


class AgreedOutcomes(msgspec.Struct, frozen=True):
    outcomes: Outcomes
    #: The image shows the outcomes from this version on.
    version: Offset


class _Submission(msgspec.Struct, frozen=True):
    commands: Sequence[Command]
    validate_only: bool
    done: "asyncio.Future[AgreedOutcomes]"


class ActiveController:
    def __init__(
        self,
        leadership: QuorumLeader,
        controller: Controller,
        store: MetadataStore,
        *,
        propose: Callable[[bytes, Term], Awaitable[Offset]],
        confirm: Callable[[], Awaitable[Offset]],
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
    ) -> None:
        self._executor = executor
        self.leadership = leadership
        self._controller = controller
        self._store = store
        self._propose = propose
        self._confirm = confirm
        self._loop = loop
        self._queue: list[_Submission] = []
        self._tasks = TaskScope(loop, logged_failures(logger, "controller"))
        self._is_working = False
        self._resigned = False
        #: Counted in by one decision at a time, wherever it is made.
        self._mutation_quotas = controller.mutation_quotas(store.image)

    async def submit(self, commands: Sequence[Command], *, validate_only: bool = False) -> AgreedOutcomes:
        """Raises ``NotQuorumLeader`` where nothing happened and nothing will."""
        if self._resigned:
            raise NotQuorumLeader("leadership is over", None)
        submission = _Submission(commands, validate_only, self._loop.create_future())
        self._queue.append(submission)
        if not self._is_working:
            self._is_working = True
            self._tasks.spawn(self._work())
        try:
            return await submission.done
        finally:
            del submission  # Its future keeps the error that it raises, and that this frame.

    def resign(self) -> None:
        """Decide nothing more. What has been proposed is still followed to its end."""
        self._resigned = True
        self._refuse_queue()

    async def _work(self) -> None:
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    await self._carry_out(batch)
                except (NotQuorumLeader, OutcomeUnknown) as refused:
                    _refuse(batch, refused.with_traceback(None))
                except Exception as error:  # A mistake: who tells of it needs to know where it was.
                    _refuse(batch, error)
        finally:
            self._is_working = False

    async def _carry_out(self, batch: Sequence[_Submission]) -> None:
        """Decide everything, have it agreed on, then answer.

        Also an answer that changes nothing waits until a majority knows no newer leader: one that was deposed and does
        not know it yet must not refuse what its successor would grant. Validations see the image as it is.
        """
        validated = [(one, (await self._decide(one.commands))[0]) for one in batch if one.validate_only]
        changing = [one for one in batch if not one.validate_only]
        outcomes, records = await self._decide([command for one in changing for command in one.commands])
        version = self._store.image.version
        if records:
            version = Offset(await self._propose(encode_records(records), self.leadership.term) + 1)
        else:
            version = max(version, await self._confirm())
        for submission, judged in validated:
            _settle(submission, AgreedOutcomes(judged, version))
        for submission in changing:
            count = len(submission.commands)
            _settle(submission, AgreedOutcomes(outcomes[:count], version))
            outcomes = outcomes[count:]

    async def _decide(self, commands: Sequence[Command]) -> tuple[Outcomes, list[AnyRecord]]:
        """Nobody else proposes records, so that the image stays as it is until these are proposed."""
        image = self._store.image
        charge = partial(self._mutation_quotas.charge, now_ms=self._loop.time() * 1000)
        if cost_of(image, commands) <= DECIDED_AT_ONCE:
            return self._controller.decide_all(image, commands, self.leadership, charge)
        return await self._loop.run_in_executor(
            self._executor, self._controller.decide_all, image, commands, self.leadership, charge
        )

    def _refuse_queue(self) -> None:
        queue, self._queue = self._queue, []
        _refuse(queue, NotQuorumLeader("leadership is over", None))


def _refuse(submissions: Sequence[_Submission], error: Exception) -> None:
    for submission in submissions:
        if not submission.done.done():
            submission.done.set_exception(error)


def _settle(submission: _Submission, result: AgreedOutcomes) -> None:
    if not submission.done.done():  # The asker may have gone.
        submission.done.set_result(result)
