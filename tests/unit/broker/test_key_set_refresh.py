"""When an issuer's keys are fetched: at intervals, soon after a miss, and not as often as strangers like."""

from quorate.broker.issuer_keys import KeySetRefresh

HOUR = 3_600_000


def fetched(interval_ms: int = HOUR) -> KeySetRefresh:
    refresh = KeySetRefresh(interval_ms, now_ms=0)
    refresh.began(0)
    refresh.fetched(5)
    return refresh


def test_keys_are_fetched_at_the_start_and_at_intervals() -> None:
    refresh = KeySetRefresh(HOUR, now_ms=0)
    assert refresh.is_due(0)
    refresh.began(0)
    assert not refresh.is_due(1)
    assert refresh.due_ms() is None
    refresh.fetched(5)

    assert not refresh.is_due(HOUR)
    assert refresh.is_due(HOUR + 5)
    assert refresh.due_ms() == HOUR + 5


def test_a_key_that_is_not_known_is_looked_for_soon() -> None:
    refresh = fetched()
    refresh.key_missed(60_000)

    assert refresh.is_due(60_000)


def test_forged_tokens_do_not_decide_how_often() -> None:
    refresh = fetched()
    fetches = 0
    for now_ms in range(10, 100_000, 100):
        refresh.key_missed(now_ms)
        if refresh.is_due(now_ms):
            fetches += 1
            refresh.began(now_ms)
            refresh.fetched(now_ms)

    assert fetches <= 10


def test_an_issuer_that_is_away_is_asked_less_and_less() -> None:
    refresh = fetched()
    gaps = []
    now_ms = HOUR + 5
    for _ in range(8):
        refresh.began(now_ms)
        refresh.failed(now_ms)
        due_ms = refresh.due_ms()
        assert due_ms is not None
        gaps.append(due_ms - now_ms)
        now_ms = due_ms

    assert gaps[:3] == [10_000, 20_000, 40_000]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 300_000
    refresh.began(now_ms)
    refresh.fetched(now_ms)
    assert refresh.due_ms() == now_ms + HOUR
    short = fetched(interval_ms=1_000)
    short.began(2_000)
    short.failed(2_000)
    assert short.due_ms() == 3_000
