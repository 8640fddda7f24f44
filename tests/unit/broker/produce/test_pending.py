"""A Produce request that waits for its partitions: what it is told, whatever commits, fails or comes too late."""

import asyncio
from typing import cast

import pytest

from quorate.broker.produce.pending import PendingProduce
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.replication.partition import CommitCallback, Partition

FAILED = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


class FakePartition:
    """Keeps what it is to call back; fails at once where it has failed before."""

    def __init__(self, failure: KafkaError | None = None) -> None:
        self._failure = failure
        self.callbacks: list[CommitCallback] = []

    def when_committed(self, end_offset: Offset, callback: CommitCallback) -> None:
        assert end_offset == 10
        if self._failure is not None:
            callback(self._failure)
        else:
            self.callbacks.append(callback)

    def when_readable(self, end_offset: Offset, callback: CommitCallback) -> None:
        self.when_committed(end_offset, callback)

    def give_up(self, callback: CommitCallback) -> None:
        """Too late to take it back: it is called all the same."""
        assert callback in self.callbacks

    def commit(self, error: KafkaError | None = None) -> None:
        for callback in self.callbacks:
            callback(error)


def pending(timeout_ms: int, *partitions: FakePartition) -> PendingProduce[dict[int, KafkaError]]:
    """Positions count from 3 on: they are those of the response, where others were answered before."""
    writes = [(position, cast(Partition, partition), Offset(10)) for position, partition in enumerate(partitions, 3)]
    return PendingProduce(asyncio.get_running_loop(), timeout_ms, writes, dict)


def test_done_without_errors_when_the_last_partition_commits() -> None:
    async def scenario() -> None:
        first, second = FakePartition(), FakePartition()
        request = pending(60_000, first, second)
        first.commit()
        assert not request.future.done()
        second.commit()
        assert await request.future == {}

    asyncio.run(scenario())


def test_a_partition_that_fails_at_once_does_not_answer_for_the_others() -> None:
    async def scenario() -> None:
        healthy = FakePartition()
        request = pending(60_000, FakePartition(FAILED), healthy)
        assert not request.future.done()
        healthy.commit()
        assert await request.future == {3: FAILED}

    asyncio.run(scenario())


def test_time_is_up_only_for_those_that_have_not_committed_and_a_late_commit_changes_nothing() -> None:
    async def scenario() -> None:
        quick, slow = FakePartition(), FakePartition()
        request = pending(0, quick, slow)
        quick.commit()
        errors = await request.future
        slow.commit(FAILED)
        assert {position: error.code for position, error in errors.items()} == {4: ErrorCode.REQUEST_TIMED_OUT}

    asyncio.run(scenario())


def test_a_request_whose_connection_is_gone_is_finished_quietly() -> None:
    async def scenario() -> None:
        partition = FakePartition()
        request = pending(60_000, partition)
        request.future.cancel()
        partition.commit()
        assert request.future.cancelled()

    asyncio.run(scenario())


def test_a_write_with_acks_1_has_what_it_asked_for_when_its_time_is_up() -> None:
    async def scenario() -> None:
        failed, slow = FakePartition(FAILED), FakePartition()
        writes = [(index, cast(Partition, partition), Offset(10)) for index, partition in enumerate((failed, slow))]
        request = PendingProduce(asyncio.get_running_loop(), 0, writes, dict, acks_all=False)
        assert await request.future == {0: FAILED}

    asyncio.run(scenario())


def test_an_answer_that_cannot_be_made_fails_for_who_waits() -> None:
    def respond(errors: dict[int, KafkaError]) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        partition = FakePartition()
        writes = [(0, cast(Partition, partition), Offset(10))]
        request = PendingProduce(asyncio.get_running_loop(), 60_000, writes, respond)
        partition.commit()
        with pytest.raises(ZeroDivisionError):
            await request.future

    asyncio.run(scenario())
