"""When a peer is dialled again."""

from random import Random

from quorate.transport.peers.config import PeerConfig
from quorate.transport.peers.link import ReconnectSchedule

CONFIG = PeerConfig(reconnect_backoff_min_ms=20, reconnect_backoff_max_ms=1000)
LONG_MS = 60_000
SHORT_MS = 5


def new_schedule() -> ReconnectSchedule:
    return ReconnectSchedule(CONFIG, Random(1))


def test_failures_back_off_up_to_the_maximum() -> None:
    schedule = new_schedule()
    delays_ms = [schedule.attempt_failed() for _ in range(60)]

    for index, longest_ms in enumerate([20, 40, 80, 160, 320, 640]):
        assert longest_ms / 2 <= delays_ms[index] <= longest_ms
    assert all(500 <= delay_ms <= 1000 for delay_ms in delays_ms[6:])
    assert len(set(delays_ms[6:])) > 1  # Spread out.


def test_link_that_lasted_is_dialled_again_at_once() -> None:
    schedule = new_schedule()

    assert [schedule.link_ended(LONG_MS) for _ in range(3)] == [0, 0, 0]


def test_new_link_that_ends_is_dialled_again_at_once_the_first_time() -> None:
    assert new_schedule().link_ended(SHORT_MS) == 0


def test_links_that_end_at_once_do_not_spin() -> None:
    schedule = new_schedule()
    delays_ms = [schedule.link_ended(SHORT_MS) for _ in range(30)]

    assert delays_ms[0] == 0
    assert all(delay_ms >= 10 for delay_ms in delays_ms[1:])
    assert delays_ms[-1] >= 500
    assert schedule.link_ended(LONG_MS) == 0


def test_a_process_that_was_killed_again_soon_after_its_start_is_dialled_at_once() -> None:
    schedule = new_schedule()
    delays_ms = []
    for incarnation in range(5):
        schedule.link_came_up(incarnation)
        delays_ms.append(schedule.link_ended(SHORT_MS))
    assert delays_ms == [0] * 5

    schedule.link_came_up(4)
    assert schedule.link_ended(SHORT_MS) > 0


def test_failures_before_a_link_do_not_delay_the_dial_after_it() -> None:
    schedule = new_schedule()
    for _ in range(10):
        schedule.attempt_failed()

    assert schedule.link_ended(SHORT_MS) == 0
    assert schedule.attempt_failed() <= 20


def test_peer_that_was_heard_of_is_dialled_with_fresh_patience() -> None:
    schedule = new_schedule()
    for _ in range(10):
        schedule.attempt_failed()
    schedule.peer_is_up()

    assert schedule.attempt_failed() <= 20
