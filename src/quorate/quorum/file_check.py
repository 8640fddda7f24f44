"""Checks the quorum's files again and again while the node runs, and has what is damaged made anew from memory."""

import asyncio
from collections.abc import Sequence

from quorate.kernel.ids import NodeId
from quorate.kernel.tasks import FailureHandler, TaskScope
from quorate.quorum.core.entries import Entry
from quorate.quorum.damage_report import Finding, tell_findings
from quorate.quorum.raft_driver import RaftDriver
from quorate.quorum.raft_storage import RaftStorage

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
