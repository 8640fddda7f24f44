"""What is asked of a running cluster outside of the load: topics, leaders, the quorum, whether replicas are in sync."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks import wire
from benchmarks.cluster import admin_wire
from benchmarks.cluster.admin_wire import ClusterView, PartitionView
from benchmarks.cluster.systems import ClusterSystem
from benchmarks.connection import Connection, RequestFailed
from quorate.kernel.errors import ErrorCode

REPLICATION_FACTOR = 3
_POLL_INTERVAL_S = 0.01
_TIMEOUT_S = 10.0
Found = TypeVar("Found")


class Asking:
    """Opens a connection for each question, to the first node that answers: nodes come and go."""

    def __init__(self, system: ClusterSystem) -> None:
        self._system = system

    def view(self, topics: Sequence[str] | None, node_id: int | None = None) -> ClusterView:
        return admin_wire.parse_metadata(self._ask(admin_wire.metadata_request(topics), node_id))

    def partitions(self, topic: str) -> tuple[PartitionView, ...] | None:
        """None while nodes tell different things: one that was silent still believes what it knew before."""
        found = {self.view([topic], node_id).topics[topic] for node_id in self._system.nodes}
        return found.pop() if len(found) == 1 else None

    def quorum_leader(self) -> int | None:
        """None while there is none, or nodes do not agree."""
        frame = admin_wire.describe_quorum_request()
        found = {admin_wire.quorum_leader(self._ask(frame, node_id)) for node_id in self._system.nodes}
        leader = found.pop()
        return leader if not found and leader >= 0 else None

    def elect_preferred_leaders(self) -> None:
        self._ask(admin_wire.elect_preferred_leaders_request())

    def create_topic(self, topic: str, partitions: int, configs: Sequence[tuple[str, str]] = ()) -> None:
        """A topic that an earlier attempt without an answer has made is as good."""
        answer = self._ask(wire.create_topics_request([topic], partitions, configs, REPLICATION_FACTOR))
        code = wire.topic_error_code(answer, topic)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RequestFailed(f"{self._system.name} answered CreateTopics with error code {code}")

    def create_assigned_topic(self, topic: str, assignments: Sequence[Sequence[int]]) -> None:
        answer = self._ask(admin_wire.create_assigned_topic_request(topic, assignments))
        if code := wire.topic_error_code(answer, topic):
            raise RequestFailed(f"{self._system.name} answered CreateTopics with error code {code}")

    def delete_topic(self, topic: str) -> None:
        if code := wire.topic_error_code(self._ask(wire.delete_topics_request(topic)), topic):
            raise RequestFailed(f"{self._system.name} answered DeleteTopics with error code {code}")

    def wait_for_all_nodes(self, within_s: float) -> None:
        """Each of them answers, and tells of all."""

        def look() -> bool | None:
            node_ids = set(self._system.nodes)
            return all(set(self.view([], node_id).addresses) == node_ids for node_id in node_ids) or None

        self.eventually(look, "all nodes to be there", within_s)

    def wait_until_whole(self, topic: str, partitions: int, within_s: float) -> tuple[PartitionView, ...]:
        """Every partition has a leader and all its replicas in sync; returns them."""

        def look() -> tuple[PartitionView, ...] | None:
            found = self.partitions(topic)
            return found if found and len(found) == partitions and all(each.is_whole for each in found) else None

        return self.eventually(look, f"{topic} to have all its replicas", within_s)

    def eventually(self, look: Callable[[], Found | None], what: str, within_s: float) -> Found:
        """Look again and again; a node that is not there yet or does not know yet is no failure."""
        deadline = time.perf_counter() + within_s
        while True:
            reason: Exception | None = None
            try:
                found = look()
                if found is not None:
                    return found
            except (OSError, RequestFailed, KeyError) as error:
                reason = error
            if time.perf_counter() > deadline:
                raise RequestFailed(f"{self._system.name}: waited {within_s:.0f} s for {what} ({reason})")
            time.sleep(_POLL_INTERVAL_S)

    def _ask(self, frame: bytes, node_id: int | None = None) -> bytes:
        nodes = [self._system.nodes[node_id]] if node_id is not None else list(self._system.nodes.values())
        refused: OSError | None = None
        for node in nodes:
            try:
                with Connection(node.address, _TIMEOUT_S) as connection:
                    return connection.ask(frame)
            except OSError as error:
                refused = error
        raise refused or OSError("no node")
