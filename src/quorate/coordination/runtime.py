"""Runs one shard of a coordinator on this node: its log, its timers, its tasks, and those who wait for its answers.

All rules are in the shard, a machine without I/O (``groups.core``, ``transactions.core``). Here its effects are carried
out: records become a batch in the log, timers live on the loop, and replies resolve the futures of the requests. The
shard's clock is the wall clock at the start, carried on by the loop's: a step of the wall clock must not end the
sessions of all members, or every transaction.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CancelTimer,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.log import CoordinatorLog
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, ProducerId
from quorate.kernel.ports import Clock
from quorate.kernel.tasks import TaskScope

logger = logging.getLogger(__name__)

CommandT = TypeVar("CommandT")
ResultT = TypeVar("ResultT")
RecordT = TypeVar("RecordT")
#: What only this kind of shard is told, or asks for.
OwnEventT = TypeVar("OwnEventT")
OwnEffectT = TypeVar("OwnEffectT")

CommandT_contra = TypeVar("CommandT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)
OwnEventT_contra = TypeVar("OwnEventT_contra", contravariant=True)
OwnEffectT_co = TypeVar("OwnEffectT_co", covariant=True)

CommonEvent = (
    CommandReceived[CommandT]
    | TimerFired[Any]
    | AppendCommitted[AppendToLog[RecordT, Any]]
    | AppendFailed[AppendToLog[RecordT, Any]]
    | LogLoaded
    | LeadershipLost
)
CommonEffect = Reply[ResultT] | SetTimer[Any] | CancelTimer[Any] | AppendToLog[RecordT, Any]


class Shard(Protocol[CommandT_contra, ResultT_co, RecordT, OwnEventT_contra, OwnEffectT_co]):
    def replay(self, record: RecordT, producer_id: ProducerId, /) -> None:
        """Apply one record of the log, before ``LogLoaded``. ``producer_id`` names the transaction it belongs to."""
        ...

    def replay_end(self, producer_id: ProducerId, /, *, is_commit: bool) -> None:
        """Apply the marker that ended a transaction; as ``replay``."""
        ...

    def handle(
        self, event: CommonEvent[CommandT_contra, RecordT] | OwnEventT_contra, now_ms: int, /
    ) -> Sequence[CommonEffect[ResultT_co, RecordT] | OwnEffectT_co]:
        """Apply one event; return what must be carried out, in order."""
        ...


class ShardRunner(Generic[CommandT, ResultT, RecordT, OwnEventT, OwnEffectT]):
    def __init__(
        self,
        shard: Shard[CommandT, ResultT, RecordT, OwnEventT, OwnEffectT],
        log: CoordinatorLog[RecordT],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_failure: Callable[["ShardRunner[Any, Any, Any, Any, Any]", Exception], None],
        own_work: Callable[[OwnEffectT], Coroutine[Any, Any, OwnEventT]] | None = None,
    ) -> None:
        """``own_work`` carries out an effect of the shard's own, and returns the event that tells it so."""
        #: The leader epoch that this runner is for. With the next one another runner starts from the log.
        self.leader_epoch: LeaderEpoch = log.leader_epoch
        self.shard = shard
        self._log = log
        self._loop = loop
        self._on_failure = on_failure
        self._own_work = own_work
        self._clock_offset_ms = clock.now_ms() - loop.time() * 1000
        self._events: deque[tuple[CommonEvent[CommandT, RecordT] | OwnEventT, int]] = deque()
        self._is_handling = False
        self._is_stopped = False
        self._tokens = count()
        self._waiting: dict[Token, asyncio.Future[ResultT]] = {}
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        #: Loading the log, and the work that is the shard's own.
        self._tasks = TaskScope(loop, self._failed)

    def __str__(self) -> str:
        return str(self._log)

    def start(self) -> None:
        self._log.when_committed(self._log_committed)

    def stop(self) -> None:
        """Tell everybody who waits to look for another coordinator, and do nothing more."""
        self.report(LeadershipLost())
        self._is_stopped = True
        self._tasks.cancel_all()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    @property
    def is_over(self) -> bool:
        return self._is_stopped

    def ask(self, command: CommandT) -> "asyncio.Future[ResultT]":
        token = Token(next(self._tokens))
        future = self._waiting[token] = self._loop.create_future()
        self.report(CommandReceived(token=token, command=command))
        return future

    # The log at the start.

    def _log_committed(self, error: ErrorCode | None) -> None:
        if self._is_stopped:
            return
        if error is not None:
            self._failed(KafkaError(error))
        elif self._log.is_empty:
            self.report(LogLoaded())  # A new topic's coordinator need not keep its first clients waiting.
        else:
            self._tasks.spawn(self._load())

    async def _load(self) -> None:
        loaded = await self._log.replay(self.shard)
        logger.info("coordinator loaded partition=%s epoch=%s records=%s", self._log, self.leader_epoch, loaded)
        self.report(LogLoaded())

    def _failed(self, error: Exception) -> None:
        """The log cannot be read, or work of the shard's own has failed: the shard cannot go on."""
        self._on_failure(self, error)

    # Events and effects.

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000 + self._clock_offset_ms)

    def report(self, event: CommonEvent[CommandT, RecordT] | OwnEventT, not_before_ms: int = 0) -> None:
        """Hand the event to the shard; one that comes up meanwhile is handled after it, never inside."""
        if self._is_stopped:
            return
        self._events.append((event, max(self._now_ms(), not_before_ms)))
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events:
                event, now_ms = self._events.popleft()
                for effect in self.shard.handle(event, now_ms):
                    self._carry_out(effect, now_ms)
        finally:
            self._is_handling = False

    def _carry_out(self, effect: CommonEffect[ResultT, RecordT] | OwnEffectT, now_ms: int) -> None:
        match effect:
            case Reply(token=token, result=result):
                future = self._waiting.pop(token)
                if not future.done():  # The client may have gone.
                    future.set_result(result)
            case SetTimer(key=key, at_ms=at_ms):
                self._cancel_timer(key)
                self._timers[key] = self._loop.call_later(max(at_ms - now_ms, 0) / 1000, self._fire, key, at_ms)
            case CancelTimer(key=key):
                self._cancel_timer(key)
            case AppendToLog() as append:
                self._log.append(append, now_ms, lambda error: self._appended(append, error))
            case own:
                self._tasks.spawn(self._do_own_work(own))

    def _fire(self, key: Hashable, at_ms: int) -> None:
        del self._timers[key]
        # Loops may fire a fraction of a millisecond early, which must not make the timer count as stale.
        self.report(TimerFired(key=key), not_before_ms=at_ms)

    def _cancel_timer(self, key: Hashable) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _appended(self, append: AppendToLog[RecordT, Any], error: ErrorCode | None) -> None:
        if error is None:
            self.report(AppendCommitted(append=append))
        else:
            self.report(AppendFailed(append=append, error=error))

    async def _do_own_work(self, effect: OwnEffectT) -> None:
        assert self._own_work is not None, f"nobody carries out {effect}"
        self.report(await self._own_work(effect))
