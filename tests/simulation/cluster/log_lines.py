"""What the nodes write into their logs: errors of the quorum are findings, and so is any talk of failed proposals.

Sound nodes also never say to each other what none of them says.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from quorate.quorum import damage_report
from quorate.transport.peers.hello import RejectReason
from tests.simulation.cluster.findings import Findings
from tests.simulation.cluster.stranger import ADDRESS as STRANGER_ADDRESS

_OF_THE_QUORUM = ("quorate.quorum", "quorate.transport.peers")


class _LogLines(logging.Handler):
    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.WARNING)
        self._findings = findings

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        is_error = record.levelno >= logging.ERROR and record.name.startswith(_OF_THE_QUORUM)
        if self._findings.expects_damage and record.name == damage_report.__name__:
            return
        if f"peer=?@{STRANGER_ADDRESS}" in text:
            return  # It was not let in.
        if is_error or "propose" in text.lower() or RejectReason.PROTOCOL_BROKEN in text:
            self._findings.report("log lines", f"{record.levelname} {record.name}: {text}")


@contextmanager
def watched_log_lines(findings: Findings) -> Iterator[None]:
    logger = logging.getLogger("quorate")
    handler = _LogLines(findings)
    propagated, level = logger.propagate, logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):  # Nobody asked to see them.
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
        logger.setLevel(level)
