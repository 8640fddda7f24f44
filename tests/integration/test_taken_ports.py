"""A node whose port is taken: it says so and ends, and the cluster never gets to know it."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.testing import ClusterInProcess
from tests.peers.child_process import free_port
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S

HOST = "127.0.0.1"
IDS = (7, 100, 4001)
NEW = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS) as running:
        yield running


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield f"{HOST}:{listener.getsockname()[1]}"


def add_node(cluster: ClusterInProcess, folder: Path, listen: str, peer_listen: str, *options: str) -> tuple[int, str]:
    arguments = ["--node-id", str(NEW), "--listen", listen, "--peer-listen", peer_listen, "--data", str(folder)]
    arguments += ["--cluster-secret-file", str(cluster.secret_file)]
    return run("cluster", "add-node", "--bootstrap-server", cluster.bootstrap_servers, *arguments, *options)


def run(*arguments: str) -> tuple[int, str]:
    """The exit status, and the last line of what went wrong."""
    done = subprocess.run(
        [str(QUORATE), *arguments], check=False, capture_output=True, text=True, timeout=START_TIMEOUT_S
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr.splitlines()[-1] if done.stderr else ""


def known_nodes(cluster: ClusterInProcess) -> set[int]:
    with KafkaClient(ClientConfig(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))) as client:
        quorum = client.quorum.describe()
        return {*client.brokers.registered().brokers, *quorum.members}


def free() -> str:
    return f"{HOST}:{free_port()}"


def test_add_node_with_a_taken_port_does_not_join(cluster: ClusterInProcess, taken: str, tmp_path: Path) -> None:
    status, sentence = add_node(cluster, tmp_path / "new", taken, free())
    assert (status, f"cannot listen on {taken}: Address already in use" in sentence) == (1, True), sentence

    status, sentence = add_node(cluster, tmp_path / "new", free(), taken)
    assert (status, f"cannot listen for peers on {taken}: Address already in use" in sentence) == (1, True), sentence

    assert known_nodes(cluster) == set(IDS)
    # The next attempt, with another port, finds nothing of this one in its way.
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("port", ["listen", "peer_listen"])
def test_a_node_that_is_served_on_a_taken_port_does_not_join(
    cluster: ClusterInProcess, taken: str, tmp_path: Path, port: str
) -> None:
    addresses = (taken, free()) if port == "listen" else (free(), taken)
    assert add_node(cluster, tmp_path, *addresses, "--write-only")[0] == 0

    status, sentence = run("serve", "--config", str(tmp_path / "node.toml"))

    assert status == 1
    assert sentence.startswith("quorate: cannot listen"), sentence
    assert known_nodes(cluster) == set(IDS)
