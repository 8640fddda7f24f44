"""What a client has used of its rate, and how long it has to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.metadata.core.rate_quotas import UsageWindow, WindowConfig

CONFIG = WindowConfig(sample_count=11, sample_size_ms=1000)


def test_what_fits_the_window_may_be_used_at_once() -> None:
    assert UsageWindow(CONFIG.size_ms).use(5000, 500, now_ms=0) == 0


def test_what_is_beyond_the_window_has_to_be_waited_for() -> None:
    window = UsageWindow(CONFIG.size_ms)
    assert window.use(5500, 500, now_ms=0) == 1000
    assert window.use(500, 500, now_ms=1000) == 1000
    assert window.use(250, 500, now_ms=1500) == 1000


def test_what_was_not_used_for_longer_than_the_window_is_lost() -> None:
    window = UsageWindow(CONFIG.size_ms)
    window.use(5000, 500, now_ms=0)
    assert not window.is_unused(now_ms=9999)
    assert window.is_unused(now_ms=10_000)
    assert window.use(5500, 500, now_ms=3_600_000) == 1000


def test_a_higher_limit_makes_up_for_what_was_used_under_a_lower_one() -> None:
    window = UsageWindow(CONFIG.size_ms)
    assert window.use(6000, 500, now_ms=0) == 2000
    assert window.use(100, 5000, now_ms=0) == 0


def test_where_waits_have_a_bound_what_would_take_longer_is_forgotten() -> None:
    window = UsageWindow(CONFIG.size_ms, most_wait_ms=1000)
    assert window.use(1_000_000, 500, now_ms=0) == 1000
    assert window.use(250, 500, now_ms=1000) == 500
    assert window.use(0, 500, now_ms=1500) == 0


@pytest.mark.parametrize(("amount", "limit"), [(10_000, 0.001), (10**9, 1), (1, 5e-324), (10**9, 5e-324)])
def test_a_wait_is_never_longer_than_an_answer_has_room_for(amount: int, limit: float) -> None:
    assert UsageWindow(CONFIG.size_ms).use(amount, limit, now_ms=0) == 2**31 - 1
    bounded = UsageWindow(CONFIG.size_ms, most_wait_ms=1000)
    assert bounded.use(amount, limit, now_ms=0) == 1000
    assert bounded.use(1, 1.7e308, now_ms=5) == 0


def test_to_ask_for_a_wait_counts_nothing() -> None:
    window = UsageWindow(CONFIG.size_ms)
    window.use(5000, 500, now_ms=0)
    assert [window.wait_ms_after(500, 500, now_ms=0) for _ in range(3)] == [1000] * 3
    assert window.use(500, 500, now_ms=0) == 1000


@given(
    amounts=st.lists(st.integers(1, 20_000), min_size=20, max_size=120),
    pauses_ms=st.lists(st.integers(0, 3000), min_size=120, max_size=120),
    limit=st.integers(500, 5000),
    sample_count=st.integers(1, 12),
)
def test_who_waits_as_told_never_gets_more_than_the_limit_and_one_window(
    amounts: list[int], pauses_ms: list[int], limit: int, sample_count: int
) -> None:
    config = WindowConfig(sample_count=sample_count, sample_size_ms=1000)
    window = UsageWindow(config.size_ms)
    now_ms = 0.0
    used = 0
    for amount, pause_ms in zip(amounts, pauses_ms, strict=False):
        used += amount
        now_ms += window.use(amount, limit, now_ms)
        # Times are whole milliseconds, which may be half a millisecond's worth too short.
        assert used <= limit * (now_ms + config.size_ms + 1) / 1000
        now_ms += pause_ms
