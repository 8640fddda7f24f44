"""Tasks on Spark say how far they are while they run, not only when they end."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.eventually import eventually

pytest.importorskip("pyspark")

from quorate.backup.spark.session.tasks import Outcome, Report, TaskAdvance, ignore
from tests.spark_session import QuietWatcher, local_spark

SIZE_BYTES = 1_000_000


class WaitsHalfWay:
    """Ends only when somebody has seen the bytes of its first half."""

    def __init__(self, was_seen: Path) -> None:
        self._was_seen = was_seen

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        def tell_and_look() -> bool:
            report(0, 0)  # It tells a few times a second at most.
            return self._was_seen.exists()

        report(SIZE_BYTES // 2, 5)
        eventually(tell_and_look, "the driver to see half of the task", within_s=60)
        return Outcome(task, SIZE_BYTES, 10)


class Watcher(QuietWatcher):
    def __init__(self, was_seen: Path) -> None:
        super().__init__()
        self._was_seen = was_seen

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        super().tasks_advanced(advanced)
        if any(task.size_bytes == SIZE_BYTES // 2 for task in advanced):
            self._was_seen.touch()


def test_half_of_a_task_is_seen_while_it_runs(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "seen")
    with local_spark() as spark:
        assert spark.run(WaitsHalfWay(tmp_path / "seen"), [b"done"], watcher) == [b"done"]

    assert TaskAdvance(0, SIZE_BYTES // 2, 5) in watcher.advanced
    assert [(task.size_bytes, task.record_count) for task in watcher.finished] == [(SIZE_BYTES, 10)]
