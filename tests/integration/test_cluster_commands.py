"""The operator's commands against a cluster: what they show, what they change, and how they refuse."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from quorate.cli.cluster.description import describe_image
from quorate.cli.commands import app
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import MetadataImage
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line

IDS = (7, 100, 4001)
#: What an operator does here, the cluster is not to do by itself meanwhile.
BY_HAND = {"auto.new.node.rebalance.enable": False, "auto.leader.rebalance.enable": False}


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs=BY_HAND) as running:
        yield running


class Outcome(msgspec.Struct, frozen=True):
    status: int
    output: str
    #: The one sentence that the user gets where the command refuses.
    error: str = ""


def quorate(cluster: ClusterInProcess, *arguments: str, answers: str = "") -> Outcome:
    result = CliRunner().invoke(app, [*arguments, "--bootstrap-server", cluster.bootstrap_servers], input=answers)
    if isinstance(result.exception, QuorateError):
        return Outcome(1, result.stdout, str(result.exception))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def status(cluster: ClusterInProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(quorate(cluster, "cluster", "status", "--format", "json").output)
    return found


def states(cluster: ClusterInProcess, node_id: int) -> list[str]:
    return [node["state"] for node in status(cluster)["nodes"] if node["node_id"] == node_id]


def create(cluster: ClusterInProcess, *names: str, **options: int) -> None:
    counts = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    done = quorate(cluster, "topics", "create", *names, *counts)
    assert done.status == 0, done


def start_joiner(cluster: ClusterInProcess, folder: Path, node_id: int, *options: str) -> ChildProcess:
    command = [str(QUORATE), "cluster", "add-node", "--bootstrap-server", cluster.bootstrap_servers]
    command += ["--node-id", str(node_id), "--listen", f"127.0.0.1:{free_port()}"]
    command += ["--peer-listen", f"127.0.0.1:{free_port()}", "--data", str(folder), *options]
    command += ["--cluster-secret-file", str(cluster.secret_file)]
    process = ChildProcess(command, folder.with_suffix(".log"))
    process.wait_for_output(ready_line, "the new node to be ready", START_TIMEOUT_S)
    return process


@pytest.mark.parametrize(
    "arguments",
    [("topics", "delete", "orders"), ("cluster", "remove-node", "--node-id", "4001")],
    ids=["topics delete", "remove-node"],
)
def test_what_cannot_be_brought_back_is_asked_for_and_never_done_by_a_script_without_yes(
    cluster: ClusterInProcess, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, "orders", partitions=1, replication_factor=1)

    refused = quorate(cluster, *arguments)
    with monkeypatch.context() as terminal:
        terminal.setattr("quorate.cli.terminal._can_answer", lambda: True)
        declined = quorate(cluster, *arguments, answers="n\n")
        assert "orders" in quorate(cluster, "topics", "list").output
        assert len(status(cluster)["nodes"]) == 3
        agreed = quorate(cluster, *arguments, answers="y\n")

    assert refused.status == 1
    assert "add --yes" in refused.error
    assert declined.status == 1
    assert "nothing was changed" in declined.output
    assert agreed.status == 0, agreed


def test_status_shows_a_healthy_cluster(cluster: ClusterInProcess) -> None:
    create(cluster, "orders", partitions=6)

    shown = quorate(cluster, "cluster", "status")

    assert shown.status == 0, shown
    assert shown.output.endswith("healthy\n")
    assert "voters 7,100,4001" in shown.output
    found = status(cluster)
    assert [(node["node_id"], node["leaders"], node["replicas"]) for node in found["nodes"]] == [
        (7, 2, 6),
        (100, 2, 6),
        (4001, 2, 6),
    ]


def test_status_fails_while_a_node_is_down(cluster: ClusterInProcess) -> None:
    create(cluster, "orders", partitions=3)
    cluster.kill(100)

    eventually(lambda: states(cluster, 100) == ["fenced"], "the node to be fenced")
    shown = quorate(cluster, "cluster", "status")
    assert shown.status == 1
    assert "problem: node 100 is fenced" in shown.output
    assert len(status(cluster)["under_replicated"]) == 3


def test_status_tells_of_a_quorum_without_a_leader(cluster: ClusterInProcess) -> None:
    cluster.kill(100, 4001)

    def without_a_leader() -> dict[str, Any] | None:
        seen = status(cluster)
        return seen if seen["quorum"] is None else None

    found = eventually(without_a_leader, "the quorum to be lost")
    assert found["healthy"] is False
    assert any("no leader" in problem for problem in found["problems"])


def test_node_joins_takes_its_share_and_leaves_again(cluster: ClusterInProcess, tmp_path: Path) -> None:
    create(cluster, "orders", partitions=8)
    joiner = start_joiner(cluster, tmp_path / "new", 8, "--rack", "r", "--voter")
    joiner.wait_for_output(lambda out: "node 8 is a voter" if "node 8 is a voter" in out else None, "its vote", 30)
    assert status(cluster)["quorum"]["voters"] == [7, 8, 100, 4001]

    planned = quorate(cluster, "cluster", "rebalance", "--dry-run")
    assert "->" in planned.output
    assert [node["replicas"] for node in status(cluster)["nodes"]] == [8, 0, 8, 8]
    moved = quorate(cluster, "cluster", "rebalance", "--yes")
    assert moved.status == 0, moved
    found = status(cluster)
    assert [node["replicas"] for node in found["nodes"]] == [6, 6, 6, 6]
    assert [node["leaders"] for node in found["nodes"]] == [2, 2, 2, 2]
    assert found["healthy"], found

    removed = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "8")
    assert removed.status == 0, removed
    found = status(cluster)
    assert [node["node_id"] for node in found["nodes"]] == [7, 100, 4001]
    assert found["quorum"]["voters"] == [7, 100, 4001]
    assert found["healthy"], found
    eventually(lambda: not joiner.running, "the removed node to end itself")
    assert "was removed from the cluster" in joiner.output()


def test_node_that_is_down_is_removed(cluster: ClusterInProcess) -> None:
    create(cluster, "orders", partitions=3, replication_factor=2)
    cluster.kill(4001)

    assert quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "4001").status == 0

    found = status(cluster)
    assert [node["node_id"] for node in found["nodes"]] == [7, 100]
    assert found["healthy"], found


@pytest.mark.parametrize("done_before", ["its vote was taken", "it was unregistered"])
def test_removal_that_was_cut_short_is_finished_by_the_next(cluster: ClusterInProcess, done_before: str) -> None:
    gone = NodeId(4001)
    cluster.kill(gone)
    servers = tuple(cluster.bootstrap_servers.split(","))
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        eventually(lambda: status(cluster)["quorum"], "a quorum with a leader")
        if done_before == "its vote was taken":
            client.quorum.remove_member(gone)
        else:
            client.brokers.unregister(gone, even_with_replicas=True)
        assert gone in client.quorum.describe().members

        removed = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "4001")

        assert removed.status == 0, removed
        assert sorted(client.quorum.describe().members) == [7, 100]
    assert status(cluster)["healthy"], status(cluster)
    again = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "4001")
    assert "the cluster has no node 4001" in again.error


def test_node_is_emptied_though_the_first_to_be_asked_knew_an_old_state(
    cluster: ClusterInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, "orders", partitions=3, replication_factor=2)
    old_states = [MetadataImage()]

    def describe(client: KafkaClient) -> MetadataImage:
        return old_states.pop() if old_states else describe_image(client)

    monkeypatch.setattr("quorate.cli.cluster.description.describe_image", describe)

    removed = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "4001")

    assert removed.status == 0, removed
    found = status(cluster)
    assert [(node["node_id"], node["replicas"]) for node in found["nodes"]] == [(7, 3), (100, 3)]
    assert found["healthy"], found


def test_removal_is_refused_where_the_replicas_have_nowhere_to_go(cluster: ClusterInProcess) -> None:
    create(cluster, "orders")

    refused = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "7")

    assert refused.status == 1
    assert "No broker is left to take the replica of orders-0" in refused.error
    assert len(status(cluster)["nodes"]) == 3
    removed = quorate(cluster, "cluster", "remove-node", "--yes", "--node-id", "7", "--force")
    assert (removed.status, removed.output) == (0, "removed node 7\n")
    assert [node["node_id"] for node in status(cluster)["nodes"]] == [100, 4001]


def test_file_of_a_new_node_takes_over_what_the_others_say(cluster: ClusterInProcess, tmp_path: Path) -> None:
    options = ("--listen", "127.0.0.1:1", "--peer-listen", "127.0.0.1:2", "--data", str(tmp_path), "--write-only")
    secret = ("--cluster-secret-file", str(cluster.secret_file))

    written = quorate(cluster, "cluster", "add-node", "--node-id", "8", *options, *secret)

    assert written.status == 0, written
    text = (tmp_path / "node.toml").read_text()
    assert '"min.insync.replicas" = "2"' in text
    assert "log.dirs" not in text
    again = quorate(cluster, "cluster", "add-node", "--node-id", "9", *options, *secret)
    assert "exists" in again.error


ADD_NODE_7 = ("cluster", "add-node", "--node-id", "7", "--listen", "h:1", "--peer-listen", "h:2", "--data", "/nowhere")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("cluster", "remove-node", "--node-id", "9"), "the cluster has no node 9"),
        ((*ADD_NODE_7, "--peers-unauthenticated"), "the cluster has a node 7 already"),
        (ADD_NODE_7, "copy the file that cluster_secret_file names"),
        ((*ADD_NODE_7, "--cluster-secret-file", "/nowhere"), "/nowhere cannot be read: No such file or directory"),
        (("topics", "describe", "nosuch"), "there is no topic nosuch"),
        (("topics", "delete", "nosuch"), "there is no topic nosuch"),
        (("topics", "create", "bad name"), "cannot create topic bad name"),
        (("topics", "create", "t", "--config", "retention.ms"), "is not of the form NAME=VALUE"),
        (("topics", "alter", "t"), "nothing to change"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    with ClusterInProcess(nodes=IDS) as cluster:
        refused = quorate(cluster, *arguments)

    assert refused.status == 1
    assert sentence in refused.error
    assert "\n" not in refused.error


def test_topics_by_hand(cluster: ClusterInProcess) -> None:
    made = quorate(cluster, "topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=5000")
    assert made.output == "created orders\n"
    assert "orders" in quorate(cluster, "topics", "list").output

    altered = quorate(cluster, "topics", "alter", "orders", "--partitions", "3", "--config", "cleanup.policy=compact")
    assert altered.status == 0, altered
    [topic] = json.loads(quorate(cluster, "topics", "describe", "orders", "--format", "json").output)
    assert topic["partition_count"] == 3
    assert topic["configs"] == {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert {tuple(sorted(each["isr"])) for each in topic["partitions"]} == {IDS}
    assert "retention.ms = 5000" in quorate(cluster, "topics", "describe", "orders").output

    quorate(cluster, "topics", "alter", "orders", "--delete-config", "retention.ms")
    assert quorate(cluster, "topics", "delete", "orders", "--yes").output == "deleted orders\n"
    assert json.loads(quorate(cluster, "topics", "list", "--format", "json").output) == []
