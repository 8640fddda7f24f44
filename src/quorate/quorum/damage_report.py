"""Damage to the quorum's files: looked for again and again, repaired from memory, and told.

It is told in the log of the node, and as a condition until all of it is repaired.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from quorate.kernel.conditions import Condition, Conditions
from quorate.kernel.ids import NodeId, Offset, QuorumLeader
from quorate.kernel.tasks import FailureHandler, TaskScope
from quorate.quorum.core.entries import Entry, LogPosition
from quorate.quorum.doubled_file import Finding
from quorate.quorum.raft_driver import RaftDriver
from quorate.quorum.raft_storage import RaftStorage

logger = logging.getLogger(__name__)

CONDITION = "quorum-damaged"
_REPEATED_AFTER_S = 10.0


def tell_findings(node_id: NodeId, findings: Iterable[Finding]) -> None:
    for finding in findings:
        level = logging.WARNING if finding.may_be_torn else logging.ERROR
        logger.log(level, "quorum file damaged node=%s path=%s problem=%s", node_id, finding.path, finding.problem)
        if finding.is_repaired:
            logger.info("quorum file repaired node=%s path=%s", node_id, finding.path)


class RecoveryReport:
    """While the log is not as far as it was before damage took a part of it."""

    def __init__(self, node_id: NodeId, path: str, conditions: Conditions, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self._path = path
        self._conditions = conditions
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self, lost_log: LogPosition, log_end_offset: Callable[[], Offset], leader: Callable[[], QuorumLeader | None]
    ) -> None:
        """Repeat it as long as it lasts: where too few voters are sound, somebody has to act."""
        known = leader()
        needs = f"offset {lost_log.end_offset} of term {lost_log.last_term}"
        logger.error(
            "quorum log incomplete after damage node=%s path=%s has_offset=%s needs_offset=%s needs_term=%s leader=%s",
            self._node_id,
            self._path,
            log_end_offset(),
            lost_log.end_offset,
            lost_log.last_term,
            None if known is None else known.node_id,
        )
        sentence = (
            f"a part of {self._path} was damaged, and the other voters have to give it back up to {needs}; until then "
            f"this node takes no part in elections, and if the quorum has no leader either, see docs/missing-files.md"
        )
        self._conditions.set(Condition(kind=CONDITION, subject=self._path, sentence=sentence))
        self._timer = self._loop.call_later(_REPEATED_AFTER_S, self.start, lost_log, log_end_offset, leader)

    def recovered(self, log_end_offset: Offset) -> None:
        self.stop()
        self._conditions.clear(CONDITION, self._path)
        logger.info(
            "quorum log complete again node=%s path=%s end_offset=%s", self._node_id, self._path, log_end_offset
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_INTERVAL_S = 60.0


class FileCheck:
    def __init__(
        self,
        node_id: NodeId,
        driver: RaftDriver,
        storage: RaftStorage,
        loop: asyncio.AbstractEventLoop,
        on_failure: FailureHandler,
    ) -> None:
        self._node_id = node_id
        self._driver = driver
        self._storage = storage
        self._tasks = TaskScope(loop, on_failure)

    def start(self) -> None:
        self._tasks.spawn(self._check_again_and_again())

    def stop(self) -> None:
        self._tasks.cancel_all()

    async def check_now(self) -> list[Finding]:
        """Read all files once, one after the other between the writes of the quorum, which never wait for long."""
        findings = []
        for path in self._storage.watched_paths:

            def check(entries: Sequence[Entry], path: str = path) -> Finding | None:
                return self._storage.check_file(path, entries)

            finding = await self._driver.run_between_writes(check)
            if finding is not None:
                tell_findings(self._node_id, [finding])
                findings.append(finding)
        return findings

    async def _check_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.check_now()
