"""``quorate up`` with three nodes: forked, stopped together whatever happens, and each startable by hand."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.cli.options import open_client
from quorate.client.admin.topics import NewTopic
from quorate.kernel.ids import TopicName
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_ports_in_a_row
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line


@pytest.fixture
def started() -> Iterator[list[ChildProcess]]:
    """Whatever a test starts, ended after it."""
    processes: list[ChildProcess] = []
    yield processes
    for process in processes:
        process.stop()


def start_up(folder: Path, started: list[ChildProcess]) -> ChildProcess:
    command = [str(QUORATE), "up", "--nodes", "3", "--port", str(free_ports_in_a_row(3)), "--data", str(folder)]
    process = ChildProcess(command, folder.with_suffix(".log"))
    started.append(process)
    process.wait_for_output(ready_line, "the cluster to be ready", START_TIMEOUT_S)
    return process


def described(folder: Path) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads((folder / "cluster.json").read_text())["nodes"]
    return nodes


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def test_nodes_end_with_a_killed_parent_and_run_again_by_hand(tmp_path: Path, started: list[ChildProcess]) -> None:
    folder = tmp_path / "cluster"
    up = start_up(folder, started)
    nodes = described(folder)
    with open_client(",".join(node["kafka"] for node in nodes)) as client:
        client.topics.create([NewTopic(name=TopicName("kept"), partitions=3)])

    up.send_signal(signal.SIGKILL)
    for node in nodes:
        eventually(lambda pid=node["pid"]: not is_running(pid), "the node to end")  # type: ignore[misc]

    for node in nodes[:2]:  # A majority is enough.
        config = folder / f"node-{node['id']}" / "node.toml"
        started.append(ChildProcess([str(QUORATE), "serve", "--config", str(config)], tmp_path / f"{node['id']}.log"))
    for process in started[1:]:
        process.wait_for_output(ready_line, "the node to be ready", START_TIMEOUT_S)
    with open_client(nodes[0]["kafka"]) as client:
        assert "kept" in client.cluster.metadata().topics


def test_others_go_on_when_a_node_dies_and_it_can_be_had_back(tmp_path: Path, started: list[ChildProcess]) -> None:
    folder = tmp_path / "cluster"
    up = start_up(folder, started)
    victim, *others = described(folder)

    os.kill(victim["pid"], signal.SIGKILL)

    eventually(lambda: f"node {victim['id']} has ended" in up.output(), "the command to say so")
    with open_client(others[0]["kafka"]) as client:
        client.topics.create([NewTopic(name=TopicName("goes-on"), partitions=3)])
    config = folder / f"node-{victim['id']}" / "node.toml"
    started.append(ChildProcess([str(QUORATE), "serve", "--config", str(config)], tmp_path / "back.log"))
    started[-1].wait_for_output(ready_line, "the node to be ready", START_TIMEOUT_S)
    assert up.running


def test_command_ends_when_all_nodes_have(tmp_path: Path, started: list[ChildProcess]) -> None:
    folder = tmp_path / "cluster"
    up = start_up(folder, started)

    for node in described(folder):
        os.kill(node["pid"], signal.SIGKILL)

    eventually(lambda: not up.running, "the command to end")
    assert "all nodes have ended" in up.output()
