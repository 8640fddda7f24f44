"""Group commit: few syncs, none lost, and failures told."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.replication.group_commit import GroupCommit
from tests.simulation.simulated_node import QueuedExecutor, settle


class FakeLog:
    def __init__(self) -> None:
        self.appended = 0
        self.durable = 0
        self.errors: list[Exception] = []
        self.fails = False
        self.lacks_descriptors = False
        self.told = 0

    def append(self) -> None:
        self.appended += 1

    def sync(self) -> None:
        if self.fails:
            raise OSError("no")
        if self.lacks_descriptors:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from OSError(errno.EMFILE, "Too many open files")
        self.durable = self.appended

    def synced(self) -> None:
        self.told += 1

    def sync_failed(self, error: Exception) -> None:
        self.errors.append(error)


def scenario(body: Callable[[GroupCommit, QueuedExecutor], Awaitable[None]]) -> None:
    async def run() -> None:
        executor = QueuedExecutor()
        await body(GroupCommit(asyncio.get_running_loop(), executor), executor)

    asyncio.run(run())


def test_everything_appended_in_one_turn_shares_one_sync() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        for _ in range(5):
            log.append()
            commit.request(log)
        await settle()
        assert len(executor.queue) == 1
        executor.run(0)
        await settle()
        assert (log.durable, log.told, len(executor.queue)) == (5, 1, 0)

    scenario(body)


def test_what_is_appended_during_a_sync_gets_the_next_one_and_never_two_at_once() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        log.append()
        commit.request(log)
        await settle()
        for _ in range(3):
            log.append()
            commit.request(log)
            await settle()
            assert len(executor.queue) == 1
        executor.run(0)
        await settle()
        assert len(executor.queue) == 1
        executor.run(0)
        await settle()
        assert (log.durable, log.told) == (4, 2)

    scenario(body)


def test_one_slow_log_does_not_hold_up_another() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        slow, quick = FakeLog(), FakeLog()
        commit.request(slow)
        await settle()
        commit.request(quick)
        await settle()
        executor.run(1)
        await settle()
        assert (slow.told, quick.told) == (0, 1)

    scenario(body)


def test_acknowledged_before_fsync_a_failed_sync_is_told_as_such() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        log.fails = True
        commit.request(log)
        await settle()
        executor.run(0)
        await settle()
        assert log.told == 0
        assert [str(error) for error in log.errors] == ["no"]

    scenario(body)


def test_idle_is_when_nothing_is_running_or_wanted() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        commit.request(log)
        idle = asyncio.ensure_future(commit.wait_until_idle())
        await settle()
        commit.request(log)
        executor.run(0)
        await settle()
        assert not idle.done()
        executor.run(0)
        await settle()
        assert idle.done()
        await commit.wait_until_idle()

    scenario(body)


def test_a_sync_that_finds_no_descriptor_is_tried_again() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        log.lacks_descriptors = True
        log.append()
        commit.request(log)
        await settle()
        executor.run(0)
        await settle()
        assert (log.errors, log.told, len(executor.queue)) == ([], 0, 0)

        log.lacks_descriptors = False
        idle = asyncio.ensure_future(commit.wait_until_idle())
        while not executor.queue:
            await asyncio.sleep(0)
        executor.run(0)
        await idle
        assert (log.durable, log.told) == (1, 1)

    scenario(body)


def test_a_log_that_goes_away_is_not_synced_again_for_want_of_descriptors() -> None:
    async def body(commit: GroupCommit, executor: QueuedExecutor) -> None:
        log = FakeLog()
        log.lacks_descriptors = True
        commit.request(log)
        await settle()
        executor.run(0)
        await settle()

        idle = asyncio.ensure_future(commit.wait_until_idle())
        await settle()
        commit.forget(log)
        await idle
        assert not executor.queue

    scenario(body)
