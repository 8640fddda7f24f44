"""Damage to the quorum's files, as it is told: in the log of the node, and as a condition until all is repaired."""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from quorate.kernel.conditions import Condition, Conditions
from quorate.kernel.ids import NodeId, Offset, QuorumLeader
from quorate.quorum.core.entries import LogPosition

logger = logging.getLogger(__name__)

CONDITION = "quorum-damaged"
_REPEATED_AFTER_S = 10.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the quorum that is not as it was written."""

    path: str
    problem: str
    #: Made good from what else this node has. Otherwise the rest of the cluster has to give it back.
    is_repaired: bool
    #: A power cut may have left the file like this.
    may_be_torn: bool = False


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
