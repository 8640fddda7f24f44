"""What a leader may send to one peer, in each of the three states."""

from quorate.kernel.ids import Offset
from quorate.quorum.core.replication import Progress, ProgressState


def replicating(*, match: int = 5, max_in_flight: int = 2) -> Progress:
    progress = Progress(Offset(match), max_in_flight)
    progress.sent(Offset(match))
    progress.accepted(Offset(match))
    return progress


def test_a_probe_is_sent_once_and_again_when_the_peer_shows_that_it_is_there() -> None:
    progress = Progress(Offset(5), max_in_flight=2)
    assert progress.probe_due
    assert not progress.can_stream

    progress.sent(Offset(9))
    assert not progress.probe_due
    assert progress.next_offset == 5

    progress.heartbeat_answered(Offset(9), now_ms=0)
    assert progress.probe_due


def test_appends_follow_each_other_up_to_the_bound() -> None:
    progress = replicating()

    progress.sent(Offset(6))
    assert progress.can_stream
    progress.sent(Offset(7))
    assert not progress.can_stream
    assert progress.next_offset == 7

    progress.accepted(Offset(6))
    assert progress.can_stream


def test_an_empty_append_takes_no_place_in_flight() -> None:
    progress = replicating(max_in_flight=1)

    progress.sent(progress.next_offset)

    assert progress.can_stream


def test_a_rejection_in_the_stream_goes_back_to_what_is_known_to_match() -> None:
    progress = replicating()
    progress.sent(Offset(8))

    progress.rejected(Offset(8), Offset(6))

    assert (progress.state, progress.next_offset, progress.probe_due) == (ProgressState.PROBE, 5, True)


def test_an_old_rejection_is_ignored() -> None:
    progress = replicating()
    progress.rejected(Offset(5), Offset(2))
    assert progress.state is ProgressState.REPLICATE

    probing = Progress(Offset(9), max_in_flight=2)
    probing.sent(Offset(9))
    probing.rejected(Offset(7), Offset(2))
    assert (probing.next_offset, probing.probe_due) == (9, False)


def test_a_rejected_probe_goes_back_to_the_hint() -> None:
    progress = Progress(Offset(9), max_in_flight=2)
    progress.sent(Offset(9))

    progress.rejected(Offset(9), Offset(4))

    assert (progress.next_offset, progress.probe_due) == (4, True)


def test_an_old_acceptance_does_not_move_anything_back() -> None:
    progress = replicating(match=5)

    progress.accepted(Offset(3))

    assert (progress.match_end_offset, progress.next_offset) == (5, 5)


def test_nothing_is_sent_until_the_snapshot_is_there() -> None:
    progress = Progress(Offset(1), max_in_flight=2)
    progress.sent_snapshot(Offset(7), retry_at_ms=500)
    assert not progress.can_stream
    assert not progress.probe_due

    progress.accepted(Offset(2))
    progress.heartbeat_answered(Offset(9), now_ms=499)
    assert progress.state is ProgressState.SNAPSHOT

    progress.accepted(Offset(7))
    assert (progress.state, progress.next_offset) == (ProgressState.REPLICATE, 7)


def test_a_lost_snapshot_is_sent_again() -> None:
    progress = Progress(Offset(1), max_in_flight=2)
    progress.sent_snapshot(Offset(7), retry_at_ms=500)

    progress.heartbeat_answered(Offset(9), now_ms=500)

    assert (progress.state, progress.probe_due) == (ProgressState.PROBE, True)


def test_a_lost_connection_waits_for_a_sign_of_life() -> None:
    progress = replicating()
    progress.sent(Offset(8))

    progress.lose_connection()
    assert (progress.state, progress.next_offset, progress.probe_due) == (ProgressState.PROBE, 5, False)
    progress.heartbeat_answered(Offset(8), now_ms=0)
    assert progress.probe_due

    waiting = Progress(Offset(1), max_in_flight=2)
    waiting.sent_snapshot(Offset(7), retry_at_ms=500)
    waiting.lose_connection()
    waiting.heartbeat_answered(Offset(9), now_ms=1)
    assert waiting.probe_due
