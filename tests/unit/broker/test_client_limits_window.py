"""What a client has used of its rate, and how long it has to wait."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.client_limits import UsageWindow, WindowConfig

CONFIG = WindowConfig(sample_count=11, sample_size_ms=1000)


def test_what_fits_the_window_may_be_used_at_once() -> None:
    assert UsageWindow(CONFIG).use(5000, 500, now_ms=0) == 0


def test_what_is_beyond_the_window_has_to_be_waited_for() -> None:
    window = UsageWindow(CONFIG)
    assert window.use(5500, 500, now_ms=0) == 1000
    assert window.use(500, 500, now_ms=1000) == 1000
    assert window.use(250, 500, now_ms=1500) == 1000


def test_what_was_not_used_for_longer_than_the_window_is_lost() -> None:
    window = UsageWindow(CONFIG)
    window.use(5000, 500, now_ms=0)
    assert not window.is_unused(now_ms=9999)
    assert window.is_unused(now_ms=10_000)
    assert window.use(5500, 500, now_ms=3_600_000) == 1000


def test_a_higher_limit_makes_up_for_what_was_used_under_a_lower_one() -> None:
    window = UsageWindow(CONFIG)
    assert window.use(6000, 500, now_ms=0) == 2000
    assert window.use(100, 5000, now_ms=0) == 0


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
    window = UsageWindow(config)
    now_ms = 0.0
    used = 0
    for amount, pause_ms in zip(amounts, pauses_ms, strict=False):
        used += amount
        now_ms += window.use(amount, limit, now_ms)
        # Times are whole milliseconds, which may be half a millisecond's worth too short.
        assert used <= limit * (now_ms + config.size_ms + 1) / 1000
        now_ms += pause_ms
