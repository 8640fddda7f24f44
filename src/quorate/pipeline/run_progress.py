"""How far a job has come: which topics are done, how many bytes and records, how fast, how long yet. Pure."""

from collections import Counter
from collections.abc import Sequence

from quorate.backup.planner import Plan
from quorate.pipeline.task_runner import FinishedTask


class RunProgress:
    """Sizes of unfinished tasks are estimates; those of finished ones are what they really copied."""

    def __init__(self, task_bytes: Sequence[int], task_topics: Sequence[frozenset[str]], topic_count: int) -> None:
        self._task_bytes = task_bytes
        self._task_topics = task_topics
        self._open_tasks = Counter(topic for topics in task_topics for topic in topics)
        self._estimated_bytes = sum(task_bytes)
        self._finished_estimate = 0
        self.task_count = len(task_bytes)
        self.topic_count = topic_count
        self.finished_tasks = 0
        self.size_bytes = 0
        self.record_count = 0

    @classmethod
    def of_plan(cls, plan: Plan) -> "RunProgress":
        return cls(
            [task.estimated_bytes for task in plan.tasks],
            [frozenset(each.topic for each in task.ranges) for task in plan.tasks],
            len(plan.topics),
        )

    def update(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        for task in finished:
            self.size_bytes += task.size_bytes
            self.record_count += task.record_count
            self._finished_estimate += self._task_bytes[task.number]
            self._open_tasks.subtract(self._task_topics[task.number])
        self.finished_tasks = min(self.task_count, max(self.finished_tasks, finished_count))

    @property
    def topics_done(self) -> int:
        return self.topic_count - sum(count > 0 for count in self._open_tasks.values())

    @property
    def fraction(self) -> float:
        """Of the work, between 0 and 1: by bytes where the session tells which tasks are done, else by tasks."""
        if self._finished_estimate and self._estimated_bytes:
            return min(1.0, self._finished_estimate / self._estimated_bytes)
        return self.finished_tasks / self.task_count if self.task_count else 1.0

    def seconds_left(self, elapsed_s: float) -> float | None:
        return None if self.fraction <= 0 else elapsed_s * (1 - self.fraction) / self.fraction
