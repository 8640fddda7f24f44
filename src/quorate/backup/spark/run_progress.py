"""How far a job has come: which topics are done, how many bytes and records, how fast, how much time is left."""

from collections import Counter
from collections.abc import Sequence

from quorate.backup.planning.planner import Plan
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance


class RunProgress:
    """Sizes of tasks are estimates until they have finished; what they have done so far is what they say themselves."""

    def __init__(self, task_bytes: Sequence[int], task_topics: Sequence[frozenset[str]], topic_count: int) -> None:
        self._task_bytes = task_bytes
        self._task_topics = task_topics
        self._open_tasks = Counter(topic for topics in task_topics for topic in topics)
        self._estimated_bytes = sum(task_bytes)
        self._finished_estimate = 0
        self.task_count = len(task_bytes)
        self.topic_count = topic_count
        self.finished_tasks = 0
        self._finished_bytes = 0
        self._finished_records = 0
        self._finished_numbers: set[int] = set()
        self._running: dict[int, TaskAdvance] = {}

    @classmethod
    def of_plan(cls, plan: Plan) -> "RunProgress":
        return cls(
            [task.estimated_bytes for task in plan.tasks],
            [frozenset(each.topic for each in task.ranges) for task in plan.tasks],
            len(plan.topics),
        )

    def update(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        for task in finished:
            self._running.pop(task.number, None)
            self._finished_numbers.add(task.number)
            self._finished_bytes += task.size_bytes
            self._finished_records += task.record_count
            self._finished_estimate += self._task_bytes[task.number]
            self._open_tasks.subtract(self._task_topics[task.number])
        self.finished_tasks = min(self.task_count, max(self.finished_tasks, finished_count))

    def advance(self, advanced: Sequence[TaskAdvance]) -> None:
        """An attempt that is begun again starts from nothing. What comes late, of a finished task, is no news."""
        for task in advanced:
            if 0 <= task.number < self.task_count and task.number not in self._finished_numbers:
                self._running[task.number] = task

    @property
    def size_bytes(self) -> int:
        return self._finished_bytes + sum(task.size_bytes for task in self._running.values())

    @property
    def record_count(self) -> int:
        return self._finished_records + sum(task.record_count for task in self._running.values())

    @property
    def topics_done(self) -> int:
        return self.topic_count - sum(count > 0 for count in self._open_tasks.values())

    @property
    def is_done(self) -> bool:
        return self.finished_tasks == self.task_count

    @property
    def fraction(self) -> float:
        """Of the work, between 0 and 1: by bytes where the session tells what was done, else by tasks."""
        under_way = sum(min(task.size_bytes, self._task_bytes[number]) for number, task in self._running.items())
        if self._estimated_bytes and self._finished_estimate + under_way:
            return min(1.0, (self._finished_estimate + under_way) / self._estimated_bytes)
        return self.finished_tasks / self.task_count if self.task_count else 1.0

    def seconds_left(self, elapsed_s: float) -> float | None:
        return None if self.fraction <= 0 else elapsed_s * (1 - self.fraction) / self.fraction
