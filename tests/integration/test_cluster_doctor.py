"""The doctor among nodes that lie, and in a cluster that loses a node and gets it back."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from quorate.cli.commands import app
from quorate.cli.doctor.observations import LeaderClaim
from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.fake_nodes import FakeNodes
from tests.peers.child_process import ChildProcess
from tests.peers.quorate_node import QUORATE

IDS = (7, 100, 4001)
ORDERS = [TopicPartition(TopicName("orders"), PartitionIndex(index)) for index in range(6)]


@pytest.fixture
def fakes() -> Iterator[FakeNodes]:
    with FakeNodes(*IDS) as running:
        yield running


@pytest.fixture
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS) as running, open_client(running) as client:
        client.topics.create([NewTopic(name=TopicName("orders"), partitions=6)])
        client.groups.offsets("group")  # Now there are coordinators.
        yield running


def open_client(cluster: ClusterInProcess) -> KafkaClient:
    return KafkaClient(ClientConfig(bootstrap_servers=tuple(cluster.bootstrap_servers.split(","))))


def doctor(bootstrap: str, *options: str) -> Result:
    result = CliRunner().invoke(app, ["cluster", "doctor", "--bootstrap-server", bootstrap, *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def claim(leader: int, epoch: int) -> LeaderClaim:
    return LeaderClaim(NodeId(leader), LeaderEpoch(epoch))


def test_nodes_that_agree_and_do_as_they_say_are_healthy(fakes: FakeNodes) -> None:
    found = doctor(fakes.bootstrap)

    assert found.exit_code == 0, found.output
    assert found.output == "3 nodes, 1 partition, 6 claims tried, 0 disagreements\n"


def test_one_bootstrap_server_leads_to_all_nodes(fakes: FakeNodes) -> None:
    assert doctor(f"127.0.0.1:{fakes[4001].port}").output.startswith("3 nodes, 1 partition, 6 claims tried")


def test_node_that_names_another_leader_is_named(fakes: FakeNodes) -> None:
    fakes[100].claim = claim(4001, 4)

    found = doctor(fakes.bootstrap, "--settle", "0")

    assert found.exit_code == 1
    assert "error: orders-0: node 100 says leader 4001 (epoch 4), node 7 says leader 7 (epoch 4)\n" in found.output
    assert (
        "orders-0: node 100 sends writes to leader 4001 (epoch 4), though others say leader 7 (epoch 4)" in found.output
    )


def test_leader_that_refuses_writes_is_named(fakes: FakeNodes) -> None:
    fakes[7].takes_writes = False

    found = doctor(fakes.bootstrap, "--settle", "0")

    assert found.exit_code == 1
    sentence = "node 7 is named leader (epoch 4) by all but refuses writes: NOT_LEADER_OR_FOLLOWER"
    assert f"error: orders-0: {sentence}\n" in found.output
    assert doctor(fakes.bootstrap, "--settle", "0", "--no-write-probe").exit_code == 0


def test_second_node_that_takes_writes_is_named(fakes: FakeNodes) -> None:
    fakes[4001].takes_writes = True

    found = doctor(fakes.bootstrap, "--settle", "0")

    assert found.exit_code == 1
    assert "node 4001 accepts writes (CORRUPT_MESSAGE), though others say leader 7 (epoch 4)" in found.output


def test_node_that_stays_behind_is_an_error_and_one_that_catches_up_is_none(fakes: FakeNodes) -> None:
    fakes[100].claim = claim(4001, 3)

    stays = doctor(fakes.bootstrap, "--settle", "0")
    catching_up = threading.Timer(0.3, lambda: setattr(fakes[100], "claim", fakes.truth))
    catching_up.start()
    catches_up = doctor(fakes.bootstrap, "--settle", "10")

    assert stays.exit_code == 1
    assert "orders-0: node 100 says leader 4001 (epoch 3), node 7 says leader 7 (epoch 4)" in stays.output
    assert catches_up.exit_code == 0, catches_up.output


def test_node_that_only_one_node_knows_is_asked_too(fakes: FakeNodes) -> None:
    for node_id in (7, 4001):
        fakes[node_id].known = [fakes[7], fakes[4001]]
    fakes[100].claim = claim(100, 4)

    told = json.loads(doctor(f"127.0.0.1:{fakes[7].port},127.0.0.1:{fakes[100].port}", "--format", "json").output)

    assert told["nodes"] == 3
    assert {100} == {each["node_id"] for each in told["findings"] if each["kind"] == "leader"}


def test_healthy_cluster(cluster: ClusterInProcess) -> None:
    found = doctor(cluster.bootstrap_servers)

    assert found.exit_code == 0, found.output
    assert found.output.endswith("3 nodes, 10 partitions, 72 claims tried, 0 disagreements\n")


def test_nothing_is_written(cluster: ClusterInProcess) -> None:
    with open_client(cluster) as client:
        before = client.offsets.latest(ORDERS)

        doctor(cluster.bootstrap_servers)

        assert client.offsets.latest(ORDERS) == before
        assert all(producers == [] for producers in client.producers.describe(ORDERS).values())
        assert client.groups.list() == []


def test_node_that_is_killed_and_comes_back_leaves_no_error(cluster: ClusterInProcess) -> None:
    cluster.kill(100)
    down = doctor(cluster.bootstrap_servers)
    cluster.restart(100)

    back = doctor(cluster.bootstrap_servers, "--settle", "15")

    assert down.exit_code == 1
    assert "error: node 100: unreachable" in down.output
    assert " 0 disagreements" in down.output
    assert back.exit_code == 0, back.output


def test_lost_quorum_is_told(cluster: ClusterInProcess) -> None:
    cluster.kill(100, 4001)

    def told() -> str:
        return doctor(cluster.bootstrap_servers, "--settle", "0").output

    eventually(lambda: "error: quorum: no leader" in told(), "the node to find itself alone")
    assert "orders-" in told()
    assert "(epoch 0) does not answer" in told()


def test_watch_tells_what_changes_and_ends_with_the_worst_status(cluster: ClusterInProcess, tmp_path: Path) -> None:
    command = [str(QUORATE), "cluster", "doctor", "--watch", "--every", "0.2", "--settle", "1"]
    watching = ChildProcess([*command, "--bootstrap-server", cluster.bootstrap_servers], tmp_path / "doctor.log")
    eventually(lambda: "0 disagreements" in watching.output(), "the first report")

    cluster.kill(100)
    eventually(lambda: "error: node 100: unreachable" in watching.output(), "the loss to be told")
    cluster.restart(100)
    eventually(lambda: "gone: node 100: unreachable" in watching.output(), "the return to be told")

    cluster.kill(*IDS)
    eventually(lambda: "error: cluster: no broker answered" in watching.output(), "the loss of all to be told")
    cluster.restart(*IDS)
    eventually(lambda: "gone: cluster: no broker answered" in watching.output(), "their return to be told")

    assert watching.output().count("error: node 100: unreachable") == 1
    assert watching.stop() == 1
