"""The controller at work, on the node that leads the quorum and for as long as it does.

Commands are decided on the image that shows everything decided before, one batch after the other: what arrives while
a batch is being agreed on makes the next batch. A decision about many partitions is made by a worker, as the image that
it is made on never changes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

import msgspec

from quorate.kernel.ids import Offset, QuorumLeader, Term
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.commands import Command
from quorate.metadata.core.controller import Controller, cost_of
from quorate.metadata.core.decisions import Outcomes
from quorate.metadata.core.records import AnyRecord
from quorate.metadata.store import MetadataStore
from quorate.quorum.entry_payload import encode_records
from quorate.quorum.errors import NotQuorumLeader

logger = logging.getLogger(__name__)

#: Decided on the loop at most, some milliseconds.
DECIDED_AT_ONCE = 300


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

    async def submit(self, commands: Sequence[Command], *, validate_only: bool = False) -> AgreedOutcomes:
        """Raises ``NotQuorumLeader`` where nothing happened and nothing will."""
        if self._resigned:
            raise NotQuorumLeader("leadership is over", None)
        submission = _Submission(commands, validate_only, self._loop.create_future())
        self._queue.append(submission)
        if not self._is_working:
            self._is_working = True
            self._tasks.spawn(self._work())
        return await submission.done

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
                except Exception as error:
                    for submission in batch:
                        if not submission.done.done():
                            submission.done.set_exception(error)
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
        if cost_of(image, commands) <= DECIDED_AT_ONCE:
            return self._controller.decide_all(image, commands, self.leadership)
        return await self._loop.run_in_executor(
            self._executor, self._controller.decide_all, image, commands, self.leadership
        )

    def _refuse_queue(self) -> None:
        queue, self._queue = self._queue, []
        for submission in queue:
            if not submission.done.done():
                submission.done.set_exception(NotQuorumLeader("leadership is over", None))


def _settle(submission: _Submission, result: AgreedOutcomes) -> None:
    if not submission.done.done():  # The asker may have gone.
        submission.done.set_result(result)
