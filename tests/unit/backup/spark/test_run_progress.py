from quorate.backup.spark.run_progress import RunProgress
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance


def test_topic_is_done_when_its_last_task_is() -> None:
    progress = RunProgress([100, 100, 100], [frozenset("a"), frozenset("ab"), frozenset("b")], topic_count=3)
    assert progress.topics_done == 1  # The third topic has nothing to copy.

    progress.update([FinishedTask(0, 90, 9)], 1)
    assert progress.topics_done == 1
    progress.update([FinishedTask(1, 80, 8)], 2)
    assert progress.topics_done == 2
    progress.update([FinishedTask(2, 70, 7)], 3)

    assert (progress.topics_done, progress.size_bytes, progress.record_count) == (3, 240, 24)
    assert progress.fraction == 1


def test_time_left_follows_the_bytes_and_not_the_number_of_tasks() -> None:
    progress = RunProgress([750, 250], [frozenset("a"), frozenset("b")], topic_count=2)
    assert progress.seconds_left(10) is None
    progress.update([FinishedTask(0, 700, 1)], 1)
    assert progress.seconds_left(9) == 3


def test_bytes_of_running_tasks_count_before_the_tasks_end() -> None:
    progress = RunProgress([750, 250], [frozenset("a"), frozenset("b")], topic_count=2)
    progress.advance([TaskAdvance(0, 300, 3), TaskAdvance(1, 200, 2)])

    assert (progress.size_bytes, progress.record_count, progress.finished_tasks) == (500, 5, 0)
    assert progress.fraction == 0.5
    assert progress.seconds_left(10) == 10

    progress.update([FinishedTask(1, 240, 24)], 1)
    progress.advance([TaskAdvance(1, 220, 22)])  # Late: the task has ended.
    assert (progress.size_bytes, progress.record_count) == (540, 27)


def test_task_that_is_larger_than_planned_is_no_more_than_done() -> None:
    progress = RunProgress([100, 300], [frozenset(), frozenset()], topic_count=0)
    progress.advance([TaskAdvance(0, 10_000, 1)])
    assert progress.fraction == 0.25


def test_attempt_that_begins_again_begins_from_nothing() -> None:
    progress = RunProgress([100], [frozenset()], topic_count=0)
    progress.advance([TaskAdvance(0, 80, 8)])
    progress.advance([TaskAdvance(0, 0, 0), TaskAdvance(7, 50, 5)])  # And a task that does not exist.
    assert (progress.size_bytes, progress.fraction) == (0, 0)


def test_session_that_only_counts_tasks_still_shows_progress() -> None:
    progress = RunProgress([10, 10, 10, 10], [frozenset()] * 4, topic_count=0)
    progress.update([], 3)
    assert progress.fraction == 0.75
    progress.update([], 7)  # A task that was tried again is counted twice.
    assert progress.fraction == 1
