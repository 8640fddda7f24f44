"""Writes that wait for the high watermark: none hangs, none ends twice."""

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.replication.core.acks import Ack, AckTracker


class Tracked:
    """A tracker, and the high watermark that its partition keeps for it."""

    def __init__(self) -> None:
        self.tracker: AckTracker[str] = AckTracker()
        self._high_watermark = Offset(0)

    def __len__(self) -> int:
        return len(self.tracker)

    def add(self, done: str, end_offset: Offset, *, enough_replicas: bool) -> list[Ack[str]]:
        return self.tracker.add(done, end_offset, self._high_watermark, enough_replicas=enough_replicas)

    def add_leader_only(self, done: str, end_offset: Offset) -> list[Ack[str]]:
        return self.tracker.add_leader_only(done, end_offset, self._high_watermark)

    def advance(self, high_watermark: Offset, *, enough_replicas: bool) -> list[Ack[str]]:
        self._high_watermark = high_watermark
        return self.tracker.advance(high_watermark, enough_replicas=enough_replicas)


def tracker_of(*ends: int) -> Tracked:
    tracker = Tracked()
    for end in ends:
        assert tracker.add(f"w{end}", Offset(end), enough_replicas=True) == []
    return tracker


def acked(*writes: str, error: ErrorCode | None = None) -> list[Ack[str]]:
    return [Ack(done=write, error=error) for write in writes]


def test_writes_end_in_offset_order_as_the_watermark_passes_them() -> None:
    tracker = tracker_of(3, 5, 9)

    assert tracker.advance(Offset(2), enough_replicas=True) == []
    assert tracker.advance(Offset(5), enough_replicas=True) == acked("w3", "w5")
    assert tracker.advance(Offset(5), enough_replicas=True) == []
    assert len(tracker) == 1


def test_retried_batch_that_comes_late_ends_with_its_first_attempt() -> None:
    tracker = tracker_of(3, 9)
    assert tracker.add("retry", Offset(3), enough_replicas=True) == []

    assert tracker.advance(Offset(3), enough_replicas=True) == acked("w3", "retry")


def test_write_that_is_committed_already_ends_at_once() -> None:
    tracker = tracker_of()
    tracker.advance(Offset(4), enough_replicas=True)

    assert tracker.add("w", Offset(4), enough_replicas=True) == acked("w")


def test_write_that_timed_out_is_not_acknowledged_later() -> None:
    tracker = tracker_of(3, 5)

    assert tracker.tracker.time_out("w3") == acked("w3", error=ErrorCode.REQUEST_TIMED_OUT)
    assert tracker.tracker.time_out("w3") == []
    assert tracker.advance(Offset(9), enough_replicas=True) == acked("w5")
    assert tracker.tracker.time_out("w5") == []


def test_write_that_committed_with_too_few_replicas_says_so() -> None:
    tracker = tracker_of(3)
    error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    assert tracker.advance(Offset(3), enough_replicas=False) == acked("w3", error=error)
    assert tracker.add("w2", Offset(2), enough_replicas=False) == acked("w2", error=error)


def test_lost_leadership_ends_every_write_and_every_later_one() -> None:
    tracker = tracker_of(3, 5)
    tracker.tracker.time_out("w3")
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    assert tracker.tracker.close() == acked("w5", error=error)
    assert tracker.tracker.close() == []
    assert tracker.add("w", Offset(1), enough_replicas=True) == acked("w", error=error)
    assert tracker.advance(Offset(9), enough_replicas=True) == []


def test_write_is_waited_for_once() -> None:
    with pytest.raises(ValueError, match="already"):
        tracker_of(3).add("w3", Offset(3), enough_replicas=True)


def test_name_of_a_timed_out_write_may_be_used_again_without_mixing_them_up() -> None:
    tracker = tracker_of(3)
    tracker.tracker.time_out("w3")
    assert tracker.add("w3", Offset(7), enough_replicas=True) == []

    assert tracker.advance(Offset(3), enough_replicas=True) == []
    assert tracker.advance(Offset(7), enough_replicas=True) == acked("w3")


def test_writes_that_time_out_while_the_watermark_stands_still_take_no_room() -> None:
    tracker = tracker_of()
    for number in range(10_000):
        tracker.add(str(number), Offset(number + 1), enough_replicas=True)
        tracker.tracker.time_out(str(number))

    assert len(tracker) == 0
    assert len(tracker.tracker._by_offset) < 200


def test_a_write_with_acks_1_ends_with_the_watermark_and_never_says_that_replicas_are_too_few() -> None:
    tracker = tracker_of(3)
    assert tracker.add_leader_only("one", Offset(4)) == []

    too_few = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert tracker.advance(Offset(4), enough_replicas=False) == [*acked("w3", error=too_few), *acked("one")]
    assert tracker.add_leader_only("two", Offset(4)) == acked("two")
    assert len(tracker) == 0


def test_writes_with_acks_1_are_released_when_the_isr_grows_and_the_others_go_on_waiting() -> None:
    tracker = tracker_of(3, 9)
    assert tracker.add_leader_only("late", Offset(8)) == []
    assert tracker.add_leader_only("early", Offset(2)) == []
    assert tracker.add_leader_only("given up", Offset(7)) == []
    tracker.tracker.time_out("given up")

    assert tracker.tracker.release_leader_only() == acked("early", "late")
    assert tracker.tracker.release_leader_only() == []
    assert tracker.advance(Offset(9), enough_replicas=True) == acked("w3", "w9")


def test_writes_with_acks_1_end_when_leadership_is_lost() -> None:
    tracker = tracker_of()
    tracker.add_leader_only("one", Offset(3))

    assert tracker.tracker.close() == acked("one", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert tracker.tracker.release_leader_only() == []
    assert tracker.add_leader_only("two", Offset(4)) == acked("two", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_name_that_waits_again_after_its_write_with_acks_1_has_ended_waits_for_replicas() -> None:
    tracker = tracker_of()
    tracker.add_leader_only("w", Offset(3))
    assert tracker.advance(Offset(3), enough_replicas=True) == acked("w")
    tracker.add("w", Offset(5), enough_replicas=True)

    assert tracker.tracker.release_leader_only() == []
    assert len(tracker) == 1
