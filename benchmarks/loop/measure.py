"""The event loop's part of a benchmark run: one cluster, one case after the other, a client that only looks on."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks import wire
from benchmarks.cases import Selection
from benchmarks.cluster import admin_wire
from benchmarks.cluster.asking import REPLICATION_FACTOR, Asking
from benchmarks.cluster.systems import NODE_IDS, QuorateCluster
from benchmarks.connection import Connection
from benchmarks.loop import attacks, cases
from benchmarks.loop.cases import Case, LoopSettings, Outcome
from benchmarks.loop.cluster_watch import ClusterWatch
from benchmarks.loop.report import LoopReport, render, save
from benchmarks.loop.side_client import SideClient
from benchmarks.report import Environment
from benchmarks.systems import Durability

_READY_TIMEOUT_S = 120.0
_CHANGE_TIMEOUT_S = 300.0
#: An attack that is not answered by then counts as one that stopped the node.
_ANSWER_TIMEOUT_S = 90.0
_BIG = "big"
_ANNOUNCING = 30
_TIMES = 1_000
_TOPICS_A_REQUEST = 500


def measure_loop(words: Sequence[str], environment: Environment, say: Callable[[str], None], *, quick: bool) -> None:
    """Kept where it is whole."""
    runner = LoopRunner(cases.QUICK if quick else cases.FULL, Selection(words=tuple(words)), say)
    outcomes = runner.measure()
    report = LoopReport(environment=environment, settings=runner.settings, outcomes=outcomes, held_by=runner.held_by)
    print(render(report))
    if not quick and (not words or cases.PREFIX in words):
        print(f"kept: {save(report)}")


class LoopRunner:
    def __init__(self, settings: LoopSettings, selection: Selection, say: Callable[[str], None]) -> None:
        self.settings = settings
        self._selection = selection
        self._say = say
        self.held_by: list[str] = []

    def measure(self) -> list[Outcome]:
        outcomes = []
        for group in (self._attacks(), self._changes()):
            wanted = [case for case in group if self._selection.wants(case)]
            if wanted:
                outcomes += self._run(wanted, group)
        return outcomes

    def _attacks(self) -> dict[Case, Callable[["_Attacked"], str]]:
        settings = self.settings
        return {
            Case.IDLE: lambda _: _rest(settings.settling_s),
            Case.LIST_TRANSACTIONS: lambda it: it.send(attacks.list_transactions()),
            Case.DESCRIBE_GROUPS: lambda it: it.send(attacks.describe_groups(settings.group_ids_bytes)),
            Case.FIND_COORDINATOR: lambda it: it.send(attacks.find_coordinator(settings.coordinator_keys)),
            Case.MANY_RECORDS_COMPACTED: lambda it: it.send(attacks.many_records("compacted", settings.records)),
            Case.MANY_RECORDS_RECOMPRESSED: lambda it: it.send(attacks.many_records("recompressed", settings.records)),
            Case.TIMES: lambda it: it.send(
                attacks.many_records("plain", settings.records // 2), attacks.list_offsets("plain", _TIMES)
            ),
            Case.BOMBS: lambda it: it.send(*attacks.bombs("compacted"), *attacks.bombs("recompressed")),
            Case.ANNOUNCED: lambda it: it.announce(),
            Case.CREATE_TOPICS: lambda it: it.create_topics(settings.topics),
            Case.GROUP_PATTERN: lambda it: it.send(attacks.consumer_group_heartbeat()),
        }

    def _changes(self) -> dict[Case, Callable[["_Attacked"], str]]:
        return {
            Case.CREATE_PARTITIONS: lambda it: it.create_big(),
            Case.METADATA_UNREAD: lambda it: it.leave_metadata_unread(),
            Case.REASSIGN_PARTITIONS: lambda it: it.reassign(),
            Case.MOVE_LEADERS: lambda it: it.move_leaders(),
            Case.RESTART_NODE: lambda it: it.restart(),
            Case.DELETE_PARTITIONS: lambda it: it.delete_big(),
        }

    def _run(self, wanted: Sequence[Case], group: dict[Case, Callable[["_Attacked"], str]]) -> list[Outcome]:
        outcomes = []
        with ExitStack() as stack:
            system = QuorateCluster(Durability.FSYNC)
            stack.callback(system.discard)
            system.launch()
            Asking(system).wait_for_all_nodes(_READY_TIMEOUT_S)
            attacked = _Attacked(system, self.settings)
            attacked.prepare(wanted)
            side_client = stack.enter_context(SideClient([node.address for node in system.nodes.values()]))
            watch = ClusterWatch(system, side_client, self.settings.settling_s)
            for case in wanted:
                outcome = watch.watch(case, lambda case=case: group[case](attacked))  # type: ignore[misc]
                outcomes.append(outcome)
                self._say(f"{case}: worst {outcome.worst_answer_ms:,.0f} ms, {outcome.seconds:.1f} s {outcome.note}")
            self.held_by += watch.held_by()
        return outcomes


class _Attacked:
    """The cluster under attack, and what is done to it."""

    def __init__(self, system: QuorateCluster, settings: LoopSettings) -> None:
        self._system = system
        self._settings = settings
        self._asking = Asking(system)
        self._address = next(iter(system.nodes.values())).address

    def prepare(self, wanted: Sequence[Case]) -> None:
        self._make("compacted", [("cleanup.policy", "compact")])
        self._make("plain", [])
        self._make("recompressed", [("compression.type", "lz4")])
        if Case.LIST_TRANSACTIONS in wanted:
            self._asking.eventually(self._make_transactional_id, "a transactional id", _READY_TIMEOUT_S)
        if Case.GROUP_PATTERN in wanted:
            for first in range(0, self._settings.group_topics, _TOPICS_A_REQUEST):
                names = [f"group-topic-{number}" for number in range(first, first + _TOPICS_A_REQUEST)]
                with Connection(self._address) as connection:
                    connection.ask(wire.create_topics_request(names, 1, (), 1))
        if any(case.startswith("loop-partitions") for case in wanted) and Case.CREATE_PARTITIONS not in wanted:
            self.create_big()

    def send(self, *frames: bytes) -> str:
        """To every node, one frame after the other; whoever does not lead what it is about refuses it."""
        notes = []
        for frame in frames:
            for node in self._system.nodes.values():
                try:
                    with Connection(node.address, _ANSWER_TIMEOUT_S) as connection:
                        notes.append(f"{len(connection.ask(frame))} bytes")
                except TimeoutError:
                    notes.append("no answer")
                except OSError:
                    notes.append("disconnected")
        return "answers: " + ", ".join(sorted(set(notes)))

    def announce(self) -> str:
        connections = [socket.create_connection(self._address, 10) for _ in range(_ANNOUNCING)]
        for piece in attacks.announced_frame_start():
            for connection in connections:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(piece)
            time.sleep(1)
        for connection in connections:
            connection.close()
        return f"{_ANNOUNCING} connections"

    def create_topics(self, count: int) -> str:
        frame = wire.create_topics_request([f"attack-topic-{number}" for number in range(count)], 1, (), 1)
        with Connection(self._address, _CHANGE_TIMEOUT_S) as connection:
            try:
                return f"{len(connection.ask(frame))} bytes"
            except OSError as error:
                return f"{type(error).__name__}"

    def create_big(self) -> str:
        count = self._settings.partitions
        with Connection(self._address, _CHANGE_TIMEOUT_S) as connection:
            answer = connection.ask(wire.create_topics_request([_BIG], count, (), REPLICATION_FACTOR))
        self._asking.wait_until_whole(_BIG, count, _CHANGE_TIMEOUT_S)
        return f"error code {wire.topic_error_code(answer, _BIG)}"

    def leave_metadata_unread(self) -> str:
        """Ask for everything many times over and read nothing."""
        with socket.create_connection(self._address, 10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(20):
                connection.sendall(admin_wire.metadata_request(None))
            time.sleep(self._settings.settling_s)
        return "20 requests"

    def reassign(self) -> str:
        """Every partition loses a replica, and then gets one again."""
        turned = self._assignments(1)
        for assignments in ([replicas[:2] for replicas in turned], turned):
            self._reassign(assignments)
        return "to 2 replicas and back to 3"

    def move_leaders(self) -> str:
        """Every partition gets another first replica, without a move of data, and then has it elected."""
        self._reassign(self._assignments(2))
        with Connection(self._address, _CHANGE_TIMEOUT_S) as connection:
            connection.ask(admin_wire.elect_preferred_leaders_request())
        self._asking.eventually(self._is_led_by_the_first, "the elections", _CHANGE_TIMEOUT_S)
        return "preferred leaders"

    def _reassign(self, assignments: Sequence[Sequence[int]]) -> None:
        with Connection(self._address, _CHANGE_TIMEOUT_S) as connection:
            connection.ask(attacks.reassignment(_BIG, assignments))
        wanted = tuple(map(tuple, assignments))
        self._asking.eventually(lambda: self._is_assigned(wanted) or None, "the reassignment", _CHANGE_TIMEOUT_S)

    def _assignments(self, turned_by: int) -> list[list[int]]:
        count = len(NODE_IDS)
        return [
            [NODE_IDS[(index + turned_by + step) % count] for step in range(count)]
            for index in range(self._settings.partitions)
        ]

    def restart(self) -> str:
        """Not the quorum leader, whose stop is an election."""
        leader = self._asking.eventually(self._asking.quorum_leader, "a quorum leader", _READY_TIMEOUT_S)
        node = next(node for node_id, node in self._system.nodes.items() if node_id != leader)
        node.process.stop(within_s=120)
        node.launch()
        self._asking.wait_until_whole(_BIG, self._settings.partitions, _CHANGE_TIMEOUT_S)
        return "stopped in good order"

    def delete_big(self) -> str:
        with Connection(self._address, _CHANGE_TIMEOUT_S) as connection:
            answer = connection.ask(wire.delete_topics_request(_BIG))
        return f"error code {wire.topic_error_code(answer, _BIG)}"

    def _is_assigned(self, wanted: tuple[tuple[int, ...], ...]) -> bool:
        found = self._asking.partitions(_BIG)
        return (
            found is not None
            and tuple(each.replicas for each in found) == wanted
            and all(each.is_whole for each in found)
        )

    def _is_led_by_the_first(self) -> bool | None:
        found = self._asking.partitions(_BIG)
        return (found is not None and all(each.has_preferred_leader for each in found)) or None

    def _make(self, topic: str, configs: Sequence[tuple[str, str]]) -> None:
        def create() -> bool:
            self._asking.create_topic(topic, 1, configs)
            return True

        self._asking.eventually(create, topic, _READY_TIMEOUT_S)

    def _make_transactional_id(self) -> bool | None:
        answers = []
        for node in self._system.nodes.values():
            with Connection(node.address) as connection:
                connection.ask(attacks.transaction_coordinator())
                # Correlation id, tags, throttle time, error code.
                answers.append(connection.ask(attacks.transactional_id())[9:11])
        return b"\0\0" in answers or None


def _rest(seconds: float) -> str:
    time.sleep(seconds)
    return "nothing is sent"
