import pytest

from quorate.backup.spark.session.work_sharing import RateLimit, share_of_limit


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def limit(clock: FakeClock, bytes_per_second: float | None) -> RateLimit:
    return RateLimit(bytes_per_second, now=clock.now, sleep=clock.sleep)


def test_bytes_take_the_time_that_the_limit_gives_them() -> None:
    clock = FakeClock()
    limited = limit(clock, 1000)
    for _ in range(10):
        limited.take(500)
    assert clock.now_s == 5


def test_pause_is_not_followed_by_a_burst() -> None:
    clock = FakeClock()
    limited = limit(clock, 1000)
    clock.sleep(100)
    limited.take(3000)
    assert clock.now_s == 102.5  # Half a second of the pause counts, and no more.


def test_work_that_is_slow_by_itself_is_not_slowed_down() -> None:
    clock = FakeClock()
    limited = limit(clock, 1000)
    for _ in range(5):
        clock.sleep(1)
        limited.take(100)
    assert clock.now_s == 5


def test_without_a_limit_nothing_waits() -> None:
    clock = FakeClock()
    limit(clock, None).take(10**12)
    assert clock.now_s == 0


@pytest.mark.parametrize(("tasks", "slots", "share"), [(100, 4, 250), (4, 4, 250), (2, 4, 500), (1, 4, 1000)])
def test_the_limit_is_shared_by_the_tasks_that_can_run_at_once(tasks: int, slots: int, share: float) -> None:
    assert share_of_limit(1000, tasks=tasks, slots=slots) == share


def test_no_limit_is_nobodys_limit() -> None:
    assert share_of_limit(None, tasks=3, slots=2) is None
