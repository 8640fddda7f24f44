"""What clients asked for and what they were told, against what is true."""

from uuid import UUID

from quorate.kernel.errors import RETRIABLE, ErrorCode
from quorate.kernel.ids import TopicId
from quorate.kernel.topic_names import INTERNAL_TOPICS
from tests.simulation.cluster.answers import NodeView
from tests.simulation.cluster.findings import Findings
from tests.simulation.cluster.truth import Truth


class Ledger:
    """A success is a promise: what it stands for is agreed on by then, and the node that told it shows it."""

    def __init__(self, findings: Findings, truth: Truth) -> None:
        self._findings = findings
        self._truth = truth
        self._topics_asked_for: set[str] = set()
        #: How often which answer came; for the report of a run.
        self.answers: dict[str, int] = {}
        self.failures_in_a_row = 0

    def asks_for_topic(self, name: str) -> None:
        self._topics_asked_for.add(name)

    def answered(self, code: int, *also_allowed: ErrorCode) -> ErrorCode:
        """Through all changes of leaders and nodes, a client sees at most errors that it may retry."""
        error = ErrorCode(code)
        self.answers[error.name] = self.answers.get(error.name, 0) + 1
        if error is not ErrorCode.NONE and error not in RETRIABLE and error not in also_allowed:
            self._findings.report("only retriable errors", f"a client was told {error.name}")
        return error

    def no_answer(self) -> None:
        self.answers["no answer"] = self.answers.get("no answer", 0) + 1

    def created(self, view: NodeView, name: str, topic_id: UUID) -> None:
        if self._truth.created.get(TopicId(topic_id)) != name:
            self._report(f"node {view.node_id} told of the creation of {name}, which was not agreed on")
        elif TopicId(topic_id) not in view.image.topic_names and topic_id not in self._truth.deleted:
            self._report(f"node {view.node_id} told of the creation of {name}, but does not show it")

    def deleted(self, view: NodeView, topic_id: UUID) -> None:
        if topic_id not in self._truth.deleted:
            self._report(f"node {view.node_id} told of the deletion of {topic_id}, which was not agreed on")
        elif TopicId(topic_id) in view.image.topic_names:
            self._report(f"node {view.node_id} told of the deletion of {topic_id}, but shows it")

    def extended(self, view: NodeView, name: str, topic_id: UUID, count: int) -> None:
        topic = view.image.topic_by_id(TopicId(topic_id))
        if topic is not None and len(topic.partitions) < count:
            self._report(f"node {view.node_id} told that {name} has {count} partitions, but shows fewer")

    def configured(self, view: NodeView, topic_id: UUID, key: str, value: str) -> None:
        if (topic_id, key, value) not in self._truth.configs:
            self._report(f"node {view.node_id} told that {key}={value}, which was not agreed on")

    def check_nothing_unasked(self) -> None:
        for name in self._truth.created.values():
            if name not in self._topics_asked_for and name not in INTERNAL_TOPICS:
                self._report(f"{name} was created, and nobody asked for it")

    def _report(self, text: str) -> None:
        self._findings.report("acknowledged changes", text)
