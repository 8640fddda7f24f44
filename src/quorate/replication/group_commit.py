"""Group commit: makes logs durable with as few syncs as the load allows.

Each log has at most one sync under way. What is appended meanwhile is covered by the next one, which starts as soon as
the first is done; so the batch that a sync covers grows with the load.
"""

import asyncio
import logging
from concurrent.futures import Executor
from typing import Protocol

from quorate.kernel.ports import is_out_of_descriptors

logger = logging.getLogger(__name__)

_RETRY_DELAY_S = 0.1


class Syncable(Protocol):
    """A log that can be made durable. ``sync`` runs in a worker thread, the two callbacks in the loop."""

    def sync(self) -> None: ...

    def synced(self) -> None: ...

    def sync_failed(self, error: Exception) -> None: ...


class GroupCommit:
    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor
        #: Dicts for their order: which log is synced first must not depend on where objects are in memory.
        self._requested: dict[Syncable, None] = {}
        self._running: dict[Syncable, None] = {}
        self._start_scheduled = False
        #: Requested too, but only after a while.
        self._retries: dict[Syncable, asyncio.TimerHandle] = {}
        self._idle: asyncio.Future[None] | None = None

    def request(self, log: Syncable) -> None:
        """Have everything that was appended to the log so far made durable."""
        self._requested[log] = None
        self._schedule_start()

    def forget(self, log: Syncable) -> None:
        self._requested.pop(log, None)
        retry = self._retries.pop(log, None)
        if retry is not None:
            retry.cancel()
        self._look_whether_idle()

    def is_running(self, log: Syncable) -> bool:
        return log in self._running

    async def wait_until_idle(self) -> None:
        """Return when no sync is under way or wanted."""
        while self._requested or self._running:
            self._idle = self._loop.create_future()
            await self._idle

    def _schedule_start(self) -> None:
        # At the end of the loop turn, so that one sync covers all that the turn appended.
        if not self._start_scheduled:
            self._start_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._start_scheduled = False
        for log in [log for log in self._requested if log not in self._running and log not in self._retries]:
            del self._requested[log]
            self._running[log] = None
            future = self._loop.run_in_executor(self._executor, log.sync)
            future.add_done_callback(lambda done, log=log: self._done(log, done))  # type: ignore[misc]

    def _done(self, log: Syncable, done: "asyncio.Future[None]") -> None:
        self._running.pop(log, None)
        if log in self._requested:
            self._schedule_start()
        error = None if done.cancelled() else done.exception()
        if error is not None and is_out_of_descriptors(error.__cause__):
            logger.warning("sync deferred: no descriptor left log=%s error=%s", log, error)
            self._try_again(log)
        elif isinstance(error, Exception):
            logger.error("sync failed log=%s error=%s", log, error)
            log.sync_failed(error)
        else:
            log.synced()
        self._look_whether_idle()

    def _try_again(self, log: Syncable) -> None:
        """Nothing is known to be lost: what was appended is in the file, and is synced when it can be opened."""
        self._requested[log] = None
        self._retries[log] = self._loop.call_later(_RETRY_DELAY_S, self._retry, log)

    def _retry(self, log: Syncable) -> None:
        del self._retries[log]
        self._schedule_start()

    def _look_whether_idle(self) -> None:
        if self._idle is not None and not self._requested and not self._running:
            self._idle.set_result(None)
            self._idle = None
