"""When the next attempt is made, and when there is none."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.retries import JITTER, UNKNOWN_TOPIC_PATIENCE_MS, Backoff, Retries, is_hopeless
from quorate.kernel.errors import ErrorCode

BACKOFF = Backoff(initial_ms=100, max_ms=1_000)


@pytest.mark.parametrize(
    ("failures", "expected_ms"), [(0, 0), (1, 100), (2, 200), (4, 800), (5, 1_000), (10**6, 1_000)]
)
def test_the_delay_doubles_up_to_its_limit(failures: int, expected_ms: int) -> None:
    delay_ms = BACKOFF.delay_ms(failures, Random(1))
    assert expected_ms * (1 - JITTER) <= delay_ms <= expected_ms * (1 + JITTER)


def test_clients_do_not_come_in_step() -> None:
    delays = {BACKOFF.delay_ms(5, Random(seed)) for seed in range(20)}
    assert len(delays) > 10


def test_the_schedule_ends_at_the_deadline() -> None:
    now_ms = 0
    retries = Retries(BACKOFF, 5_000, Random(1), now_ms)
    attempts = 0
    while retries.failed(now_ms):
        assert now_ms <= retries.not_before_ms <= 5_000
        now_ms = retries.not_before_ms
        attempts += 1
    assert now_ms == 5_000
    assert 6 <= attempts <= 12


def test_progress_starts_the_schedule_anew() -> None:
    retries = Retries(BACKOFF, 1_000, Random(1), now_ms=0)
    assert retries.failed(900)
    retries.succeeded(950)
    assert retries.waited_ms(1_000) == 50
    assert retries.failed(1_900)
    assert not retries.failed(1_950)


def test_a_hint_is_tried_at_once_but_only_the_first_time() -> None:
    retries = Retries(BACKOFF, 10_000, Random(1), now_ms=0)
    assert retries.failed(5, at_once=True)
    assert retries.not_before_ms == 5
    assert retries.failed(6, at_once=True)
    assert retries.not_before_ms > 6


@given(st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=50))
def test_an_attempt_is_never_planned_after_the_deadline(steps: list[tuple[int, bool]]) -> None:
    now_ms, started_ms = 0, 0
    retries = Retries(BACKOFF, 2_000, Random(1), now_ms)
    for passed_ms, succeeded in steps:
        now_ms += passed_ms
        if succeeded:
            retries.succeeded(now_ms)
            started_ms = now_ms
        elif retries.failed(now_ms):
            assert now_ms <= retries.not_before_ms <= started_ms + 2_000
        else:
            assert now_ms - started_ms >= 2_000


@pytest.mark.parametrize(
    ("code", "waited_ms", "expected"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 10**9, False),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 10**9, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 0, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_PATIENCE_MS - 1, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_PATIENCE_MS, True),
    ],
)
def test_what_is_worth_another_attempt(code: ErrorCode, waited_ms: int, expected: bool) -> None:
    assert is_hopeless(code, waited_ms) is expected
