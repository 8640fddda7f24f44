"""Runs one shard of the transaction coordinator on this node: its log, its timers, its markers, and those who wait.

All rules are in ``quorate.coordination.transactions.core``. Here effects are carried out: records become a batch in
the log, timers live on the loop, markers are sent, and replies resolve the futures of the requests. The shard's clock
is the wall clock at the start, carried on by the loop's: a step of the wall clock must not end every transaction.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.transactions.core.commands import Command, Result
from quorate.coordination.transactions.core.effects import (
    Append,
    Effect,
    Event,
    Markers,
    MarkersWritten,
    SendMarkers,
    TimerKey,
)
from quorate.coordination.transactions.core.record_codec import decode_record, encode_key, encode_value
from quorate.coordination.transactions.core.shard import TransactionCoordinatorShard
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch
from quorate.kernel.ports import Clock

logger = logging.getLogger(__name__)


class TransactionShardRunner:
    def __init__(
        self,
        shard: TransactionCoordinatorShard,
        log: CoordinatorLog,
        leader_epoch: LeaderEpoch,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        send_markers: Callable[[Markers, LeaderEpoch], Coroutine[Any, Any, None]],
        on_failure: Callable[["TransactionShardRunner", Exception | ErrorCode], None],
    ) -> None:
        #: The reign that this runner is for; another one starts with what the log says then.
        self.leader_epoch = leader_epoch
        self._shard = shard
        self._log = log
        self._loop = loop
        self._send_markers = send_markers
        self._on_failure = on_failure
        self._clock_offset_ms = clock.now_ms() - loop.time() * 1000
        self._events: deque[tuple[Event, int]] = deque()
        self._is_handling = False
        self._is_stopped = False
        self._tokens = count()
        self._waiting: dict[Token, asyncio.Future[Result]] = {}
        self._timers: dict[TimerKey, asyncio.TimerHandle] = {}
        #: Loading the log, and sending markers. Not a set, whose order differs from run to run.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        self._log.when_committed(self._log_committed)

    def stop(self) -> None:
        """Tell everybody who waits to look for another coordinator, and do nothing more."""
        self._report(LeadershipLost())
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    @property
    def is_over(self) -> bool:
        return self._is_stopped

    def ask(self, command: Command) -> asyncio.Future[Result]:
        token = Token(next(self._tokens))
        future = self._waiting[token] = self._loop.create_future()
        self._report(CommandReceived(token=token, command=command))
        return future

    # The log at the start.

    def _log_committed(self, error: ErrorCode | None) -> None:
        if self._is_stopped:
            return
        if error is not None:
            self._on_failure(self, error)
        elif self._log.is_empty:
            self._report(LogLoaded())  # A new topic's coordinator need not keep its first clients waiting.
        else:
            self._run(self._load())

    async def _load(self) -> None:
        loaded = await self._log.replay(self._replay)
        logger.info("transactions loaded epoch=%s records=%s", self.leader_epoch, loaded)
        self._report(LogLoaded())

    def _replay(self, key: bytes | memoryview | None, value: bytes | memoryview | None) -> None:
        if key is None:
            raise CorruptCoordinatorRecord("a record has no key")
        record = decode_record(key, value)
        if record is not None:
            self._shard.replay(record)

    # Events and effects.

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000 + self._clock_offset_ms)

    def _report(self, event: Event, not_before_ms: int = 0) -> None:
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
                for effect in self._shard.handle(event, now_ms):
                    self._carry_out(effect, now_ms)
        finally:
            self._is_handling = False

    def _carry_out(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Reply(token=token, result=result):
                future = self._waiting.pop(token)
                if not future.done():  # The client may have gone.
                    future.set_result(result)
            case SetTimer(key=key, at_ms=at_ms):
                if key in self._timers:
                    self._timers.pop(key).cancel()
                self._timers[key] = self._loop.call_later(max(at_ms - now_ms, 0) / 1000, self._fire, key, at_ms)
            case AppendToLog():
                entries = [(encode_key(record), encode_value(record)) for record in effect.records]
                self._log.append(entries, now_ms, lambda error: self._appended(effect, error))
            case SendMarkers(markers=markers):
                self._run(self._send(markers))

    def _fire(self, key: TimerKey, at_ms: int) -> None:
        del self._timers[key]
        # Loops may fire a fraction of a millisecond early, which must not make the timer count as stale.
        self._report(TimerFired(key=key), not_before_ms=at_ms)

    def _appended(self, append: Append, error: ErrorCode | None) -> None:
        if error is None:
            self._report(AppendCommitted(append=append))
        else:
            self._report(AppendFailed(append=append, error=error))

    async def _send(self, markers: Markers) -> None:
        await self._send_markers(markers, self.leader_epoch)
        self._report(MarkersWritten(markers=markers))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._has_run)

    def _has_run(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._on_failure(self, error)
