"""The file descriptors of a process: their limit, what they are for, and what an operator is told of it.

They are for the files of logs, for clients, for other nodes, and some are to spare. Nothing that a node must do depends
on how many there are: logs share the files that may be open. What is left after the files is how many connections of
clients there can be at a time.
"""

import asyncio
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from quorate.kernel.conditions import Condition, Conditions, Severity
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId

logger = logging.getLogger(__name__)

#: From here on nobody needs to think of it. Apache Kafka's documentation asks for 100,000.
PLENTY = 4096
#: For the opening of files alone, whatever else has taken all others: votes, the metadata log, records.
SPARE = 32
#: For the connections from and to other nodes, for strangers at the peer port, and for what is open for a moment.
_FEWEST_FOR_PEERS = 48
_MOST_FOR_PEERS = 1024
_PEERS_PART = 8
_FEWEST_FILES_AND_CONNECTIONS = 32
LOW = "open-files-limit"
EXHAUSTED = "descriptors-exhausted"
#: Where there is no limit at all: no kernel has a table for more by default.
_MOST = 1 << 20
#: For so long after the last time it is still a problem.
_REPORTED_FOR_S = 60.0
_OWN_DESCRIPTORS = "/dev/fd"


class DescriptorBudget(msgspec.Struct, frozen=True, kw_only=True):
    #: All that the process may have.
    limit: int
    #: Files of logs that are open at a time.
    files: int
    #: Connections of clients.
    connections: int
    #: Connections from and to other nodes, and what is open for a moment.
    peers: int

    @property
    def is_low(self) -> bool:
        return self.limit < PLENTY

    @property
    def strangers(self) -> int:
        """Of the peers' connections: those that have not said yet who they are, or are of nobody that is known."""
        return self.peers // 4

    @property
    def advice(self) -> str:
        return (
            f"the limit of open files is {self.limit}, so the node keeps {self.files} files open and takes "
            f"{self.connections} connections of clients at a time; raise it (ulimit -n, LimitNOFILE= of systemd) to "
            f"{PLENTY} or more"
        )


def budget_of(limit: int, in_use: int) -> DescriptorBudget:
    """For a process that has ``in_use`` of them open before it begins. ``QuorateError`` where it cannot begin."""
    for_peers = min(max(_FEWEST_FOR_PEERS, limit // _PEERS_PART), _MOST_FOR_PEERS)
    left = limit - in_use - SPARE - for_peers
    if left < _FEWEST_FILES_AND_CONNECTIONS:
        needed = in_use + SPARE + _FEWEST_FOR_PEERS + _FEWEST_FILES_AND_CONNECTIONS
        raise QuorateError(
            f"the limit of open files is {limit} and a node needs {needed}: raise it (ulimit -n, LimitNOFILE= of "
            f"systemd) to {PLENTY} or more"
        )
    return DescriptorBudget(limit=limit, files=left // 2, connections=left - left // 2, peers=for_peers)


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
