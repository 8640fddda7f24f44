"""The rate of a quota: over a window of samples, as Apache Kafka measures it."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.quotas.windowed_rate import WindowConfig, WindowedRate

WINDOW = WindowConfig(sample_count=11, sample_size_ms=1000)


def test_a_first_burst_is_spread_over_the_whole_window() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(5000, now_ms=0)
    assert rate.per_second(now_ms=0) == 500


def test_what_is_older_than_the_window_is_forgotten() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(5000, now_ms=0)
    rate.record(1000, now_ms=5000)
    assert rate.per_second(now_ms=10_000) == 600
    assert rate.per_second(now_ms=11_000) == 100
    assert rate.is_idle(now_ms=16_000)
    assert rate.per_second(now_ms=16_000) == 0


def test_within_its_limit_nobody_is_throttled() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(5000, now_ms=0)
    assert rate.throttle_ms(500, now_ms=0) == 0


def test_after_the_throttle_time_the_rate_is_back_at_its_limit() -> None:
    rate = WindowedRate(WINDOW)
    rate.record(5500, now_ms=0)
    assert rate.throttle_ms(500, now_ms=0) == 1000

    rate = WindowedRate(WINDOW)
    for second in range(10):
        rate.record(1000, now_ms=second * 1000)
    assert rate.per_second(now_ms=10_000) == 1000
    assert rate.throttle_ms(800, now_ms=10_000) == 2500


@given(
    amounts=st.lists(st.integers(1, 20_000), min_size=80, max_size=120),
    limit=st.integers(500, 5000),
    sample_count=st.integers(2, 12),
)
def test_who_waits_as_told_keeps_to_the_limit_in_the_long_run(
    amounts: list[int], limit: int, sample_count: int
) -> None:
    config = WindowConfig(sample_count=sample_count, sample_size_ms=1000)
    rate = WindowedRate(config)
    now_ms = 0.0
    for amount in amounts:
        rate.record(amount, now_ms)
        now_ms += rate.throttle_ms(limit, now_ms) + 1
    allowed = limit * (now_ms / 1000 + sample_count)
    assert sum(amounts) <= allowed + max(amounts)
