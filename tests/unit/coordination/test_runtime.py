"""A shard that runs: its timers on a loop whose time the test turns, and tasks that cannot fail unseen."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast
from uuid import UUID

from quorate.coordination.core.effects import LogLoaded
from quorate.coordination.groups.coordinator import GroupShardRunner
from quorate.coordination.groups.core import records
from quorate.coordination.groups.core.classic_protocol import GroupProtocol, GroupState
from quorate.coordination.groups.core.commands import (
    DescribeGroup,
    DescribeGroupResult,
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroup,
    JoinGroupResult,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.runtime import ShardRunner
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, ProducerId
from quorate.replication.partition import Partition

GROUP = GroupId("group")


class Timer:
    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """As much of a loop as timers and futures need."""

    def __init__(self) -> None:
        self._futures = asyncio.new_event_loop()
        self.now_s = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def create_future(self) -> "asyncio.Future[Any]":
        return self._futures.create_future()

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: object) -> Timer:
        timer = Timer(self.now_s + delay_s, lambda: callback(*arguments))
        self.timers.append(timer)
        return timer

    def fire_next(self, early_s: float = 0.0) -> None:
        due = min((timer for timer in self.timers if not timer.is_cancelled), key=lambda timer: timer.at_s)
        self.timers.remove(due)
        self.now_s = max(self.now_s, due.at_s - early_s)
        due.callback()

    def close(self) -> None:
        self._futures.close()


class EmptyLog:
    log_start_offset = log_end_offset = Offset(0)


class EmptyPartition:
    """A partition that has nothing and takes nothing."""

    log = EmptyLog()
    leader_epoch = LeaderEpoch(0)
    high_watermark = Offset(0)

    def __init__(self, failure: KafkaError | None = None) -> None:
        self.failure = failure

    def when_committed(self, end_offset: Offset, callback: Callable[[KafkaError | None], None]) -> None:
        callback(self.failure)

    def append(self, batches: memoryview, now_ms: int, *, acks_all: bool) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


class SteppingClock:
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms


class Scene:
    def __init__(self, failure: KafkaError | None = None) -> None:
        self.loop = Loop()
        self.failed: list[tuple[object, str]] = []
        self.clock = SteppingClock()
        config = GroupConfig(initial_rebalance_delay_ms=3_000)
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        partition = cast(Partition, EmptyPartition(failure))
        self.runner = GroupShardRunner(
            GroupCoordinatorShard(config, lambda: UUID(int=1)),
            CoordinatorLog(partition, records, loop, cast(ThreadPoolExecutor, None)),
            loop=loop,
            clock=self.clock,
            on_failure=lambda runner, error: self.failed.append((runner, str(error))),
        )
        self.runner.start()

    def join(self) -> "asyncio.Future[Any]":
        return self.runner.ask(
            JoinGroup(
                group_id=GROUP,
                member_id=MemberId(""),
                group_instance_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(GroupProtocol(name="range", metadata=b""),),
                require_known_member_id=False,
                supports_skip_assignment=False,
            )
        )

    def state(self) -> GroupState:
        result = self.runner.ask(DescribeGroup(group_id=GROUP)).result()
        assert isinstance(result, DescribeGroupResult)
        return result.state


def test_timer_that_fires_a_fraction_of_a_millisecond_early_counts() -> None:
    scene = Scene()
    joined = scene.join()
    assert not joined.done()

    scene.loop.fire_next(early_s=0.0007)
    result = joined.result()
    assert isinstance(result, JoinGroupResult)
    assert result.generation == 1
    scene.loop.close()


def test_step_of_the_wall_clock_does_not_end_sessions() -> None:
    scene = Scene()
    joining = scene.join()
    scene.loop.fire_next()
    joined = joining.result()
    scene.loop.now_s += 5
    scene.clock.wall_ms += 3_600_000
    heartbeat = GroupHeartbeat(
        group_id=GROUP, generation=joined.generation, member_id=joined.member_id, group_instance_id=None
    )
    assert scene.runner.ask(heartbeat).result() == GroupHeartbeatResult()

    scene.loop.fire_next()
    assert scene.state() is GroupState.COMPLETING_REBALANCE, "10 s after joining, 5 s after the heartbeat"
    scene.loop.fire_next()
    assert scene.state() is GroupState.EMPTY, "10 s after the heartbeat"
    scene.loop.close()


def test_stopped_runner_answers_who_waits_and_then_keeps_still() -> None:
    scene = Scene()
    joined = scene.join()

    scene.runner.stop()
    assert joined.result().error is ErrorCode.NOT_COORDINATOR
    assert all(timer.is_cancelled for timer in scene.loop.timers)
    scene.loop.close()


def test_log_that_fails_before_it_is_loaded_ends_the_runner() -> None:
    scene = Scene(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))

    assert scene.failed == [(scene.runner, "KAFKA_STORAGE_ERROR")]
    scene.loop.close()


class Work(NamedTuple):
    """An effect of a shard's own."""


class WorkingShard:
    """Has work done as soon as its log is loaded."""

    def replay(self, record: str, producer_id: ProducerId, /) -> None: ...

    def replay_end(self, producer_id: ProducerId, /, *, is_commit: bool) -> None: ...

    def handle(self, event: object, now_ms: int, /) -> list[Work]:
        return [Work()] if isinstance(event, LogLoaded) else []


class FakeLog:
    """Committed, and empty unless reading it fails."""

    leader_epoch = LeaderEpoch(3)

    def __init__(self, failure: Exception | None = None) -> None:
        self.is_empty = failure is None
        self._failure = failure

    def when_committed(self, done: Callable[[ErrorCode | None], None]) -> None:
        done(None)

    async def replay(self, shard: WorkingShard) -> int:
        assert self._failure is not None
        raise self._failure


def failures_of(log: FakeLog, own_work: Callable[[Work], Coroutine[Any, Any, str]]) -> list[Exception]:
    """What a runner tells its coordinator of, until it is stopped."""

    async def run() -> list[Exception]:
        failures: list[Exception] = []
        runner: ShardRunner[str, str, str, str, Work] = ShardRunner(
            WorkingShard(),
            cast(CoordinatorLog[str], log),
            loop=asyncio.get_running_loop(),
            clock=SteppingClock(),
            on_failure=lambda _, error: failures.append(error),
            own_work=own_work,
        )
        runner.start()
        await settle()
        runner.stop()
        await settle()
        return failures

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def never(work: Work) -> str:
    await asyncio.Event().wait()
    return "never"


def test_work_of_a_shard_that_fails_is_told_to_its_coordinator() -> None:
    error = RuntimeError("boom")

    async def fail(work: Work) -> str:
        raise error

    assert failures_of(FakeLog(), fail) == [error]


def test_loading_that_fails_in_a_way_nobody_thought_of_is_told_to_its_coordinator() -> None:
    error = RuntimeError("boom")
    assert failures_of(FakeLog(error), never) == [error]


def test_work_that_is_cancelled_with_its_runner_is_no_failure() -> None:
    assert failures_of(FakeLog(), never) == []
