"""The file descriptors of the process: their limit, and what is told of it."""

import asyncio
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from quorate.broker.descriptor_budget import SPARE, DescriptorBudget, budget_of
from quorate.kernel.conditions import Condition, Conditions, Severity
from quorate.kernel.ids import NodeId

logger = logging.getLogger(__name__)

LOW = "open-files-limit"
EXHAUSTED = "descriptors-exhausted"
#: Where there is no limit at all: no kernel has a table for more by default.
_MOST = 1 << 20
#: For so long after the last time it is still a problem.
_REPORTED_FOR_S = 60.0
_OWN_DESCRIPTORS = "/dev/fd"


def raise_limit() -> int:
    """Have as many descriptors as the system allows this process; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return allowed
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:
        logger.warning("open files limit not raised limit=%s wanted=%s error=%s", soft, allowed, error)
        return soft
    return allowed


def settle_budget() -> DescriptorBudget:
    """At the start of a node's process: raise the limit, and see what the descriptors are for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = raise_limit()
    budget = budget_of(limit, len(os.listdir(_OWN_DESCRIPTORS)))
    level = logging.WARNING if budget.is_low else logging.INFO
    state = "is low" if budget.is_low else "settled"
    logger.log(
        level,
        "open files limit %s limit=%s raised_from=%s files=%s connections=%s",
        state,
        budget.limit,
        soft,
        budget.files,
        budget.connections,
    )
    return budget


class SpareDescriptors:
    """The last descriptors that the process may have, which only files get.

    The soft limit stands below what is allowed by as many, and is lifted for the moment in which a file is opened.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._set(limit - SPARE)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        with self._lock:
            self._set(self._limit)
            try:
                yield
            finally:
                self._set(self._limit - SPARE)

    def _set(self, soft: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class DescriptorWatch:
    """Tells the operator of a limit that is low, and of the moments in which it was reached."""

    def __init__(self, node_id: NodeId, budget: DescriptorBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self.budget = budget
        self._loop = loop
        self._conditions = Conditions()
        self._clearing: asyncio.TimerHandle | None = None

    def report_to(self, conditions: Conditions) -> None:
        self._conditions = conditions
        if self.budget.is_low:
            conditions.set(
                Condition(kind=LOW, severity=Severity.INFORMATION, sentence=self.budget.advice),
            )

    def ran_out_in_any_thread(self) -> None:
        """A file could only be opened after others were closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.ran_out, "file")

    def ran_out(self, wanted: str) -> None:
        if self._clearing is None:
            logger.warning("no descriptor left node=%s wanted=%s limit=%s", self._node_id, wanted, self.budget.limit)
            sentence = f"the process has run out of descriptors: {self.budget.advice}"
            self._conditions.set(Condition(kind=EXHAUSTED, sentence=sentence))
        else:
            self._clearing.cancel()
        self._clearing = self._loop.call_later(_REPORTED_FOR_S, self.passed)

    def stop(self) -> None:
        if self._clearing is not None:
            self._clearing.cancel()

    def passed(self) -> None:
        """It has not happened for a while."""
        self.stop()
        self._clearing = None
        self._conditions.clear(EXHAUSTED)
