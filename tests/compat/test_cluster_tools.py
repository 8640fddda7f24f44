"""Apache Kafka's own tools for operators against a cluster of three processes."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.peers.quorate_cluster import IDS, QuorateCluster
from tests.proofs import KAFKA_TOOLS

pytestmark = [
    pytest.mark.peer,
    pytest.mark.proves(*KAFKA_TOOLS, "on three nodes: metadata quorum, reassignments, leader elections, unregistering"),
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    if request.config.getoption("--target") != "quorate":
        pytest.skip("the cluster is Quorate's own")
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def run(tool_shell: ToolShell, cluster: QuorateCluster) -> Run:
    def run_against_cluster(tool: str, *arguments: str) -> str:
        where = ("--bootstrap-server", cluster.bootstrap)
        if tool == "kafka-metadata-quorum":  # It wants to know where before it wants to know what.
            return tool_shell.run(tool, *where, *arguments)
        return tool_shell.run(tool, *arguments, *where)

    return run_against_cluster


def test_metadata_quorum_is_described(run: Run, cluster: QuorateCluster) -> None:
    status = run("kafka-metadata-quorum", "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", status)
    assert leader is not None
    assert int(leader[1]) in IDS
    voters = re.search(r"CurrentVoters:\s+(.*)", status)
    assert voters is not None
    assert sorted(int(node) for node in re.findall(r'"id": (\d+)', voters[1])) == list(IDS)

    replication = run("kafka-metadata-quorum", "describe", "--replication")
    rows = [line.split() for line in replication.splitlines()[1:] if line.strip()]
    assert {int(row[0]) for row in rows} == set(IDS)
    assert {row[-1] for row in rows} == {"Leader", "Follower"}


def test_topics_are_replicated_and_have_no_problems(run: Run) -> None:
    run("kafka-topics", "--create", "--topic", "replicated", "--partitions", "3", "--replication-factor", "3")

    described = run("kafka-topics", "--describe", "--topic", "replicated")

    rows = re.findall(r"Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", described)
    assert {int(leader) for leader, _, _ in rows} == set(IDS)
    for problem in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert "replicated" not in run("kafka-topics", "--describe", problem)


def test_partitions_are_reassigned(run: Run, tmp_path: Path) -> None:
    run("kafka-topics", "--create", "--topic", "moving", "--replica-assignment", "7:100,100:7")
    plan = tmp_path / "plan.json"
    targets = [[4001, 7], [100, 4001]]
    partitions = [{"topic": "moving", "partition": i, "replicas": to} for i, to in enumerate(targets)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute")

    def is_complete() -> bool:
        shown = run("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
        return shown.count("is completed") == len(targets)

    eventually(is_complete, "the reassignment to be done")
    described = run("kafka-topics", "--describe", "--topic", "moving")
    assert re.findall(r"Replicas: ([\d,]+)", described) == ["4001,7", "100,4001"]
    assert "No partition reassignments found" in run("kafka-reassign-partitions", "--list")


def leaders_of(run: Run, topic: str) -> list[str]:
    return re.findall(r"Leader: (\d+)", run("kafka-topics", "--describe", "--topic", topic))


def test_preferred_leaders_are_elected(run: Run, cluster: QuorateCluster) -> None:
    run("kafka-topics", "--create", "--topic", "led", "--replica-assignment", "100:7:4001")
    cluster.kill([100])
    eventually(lambda: leaders_of(run, "led") == ["7"], "another leader")
    cluster.restart([100])
    of_led = ("--topic", "led", "--partition", "0", "--election-type", "preferred")

    def elects() -> bool:
        try:
            return "completed" in run("kafka-leader-election", *of_led)
        except ToolError:
            return False  # Not in sync yet.

    eventually(elects, "the election")
    assert leaders_of(run, "led") == ["100"]


def test_node_is_unregistered_and_removed_from_the_quorum(run: Run, cluster: QuorateCluster) -> None:
    cluster.kill([4001])
    run("kafka-metadata-quorum", "remove-controller", "--controller-id", "4001", "--controller-directory-id", _NO_ID)

    run("kafka-cluster", "unregister", "--id", "4001")

    status = run("kafka-metadata-quorum", "describe", "--status")
    assert '"id": 4001' not in status
    with pytest.raises(ToolError, match=r"(?i)not registered|not found"):
        run("kafka-cluster", "unregister", "--id", "4001")


_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
