"""``quorate up``: a local cluster that says where it is, keeps what was written, and leaves nothing running."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quorate.cli.options import open_client
from tests.compat.clients.client import Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.reading import read_all
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line

NOON_MS = 1_735_732_800_000
Up = Callable[[int], ChildProcess]


@pytest.fixture
def up(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Up]:
    """Start the command on a port and wait until it is ready."""
    if request.config.getoption("--target") != "quorate":
        pytest.skip("the command is Quorate's own")
    started: list[ChildProcess] = []

    def start(port: int) -> ChildProcess:
        command = [str(QUORATE), "up", "--nodes", "1", "--port", str(port), "--data", str(tmp_path / "cluster")]
        process = ChildProcess(command, tmp_path / "up.log")
        started.append(process)
        process.wait_for_output(ready_line, "the cluster to be ready", START_TIMEOUT_S)
        return process

    yield start
    for process in started:
        process.stop()


def test_cluster_is_described_for_people_and_for_scripts(up: Up, tmp_path: Path) -> None:
    port = free_port()
    process = up(port)

    assert process.output().splitlines()[-1] == f"ready: 127.0.0.1:{port}"
    [node] = described_nodes(tmp_path)
    assert node["kafka"] == f"127.0.0.1:{port}"
    assert is_running(node["pid"])


def test_records_are_there_again_at_the_next_start(up: Up) -> None:
    port = free_port()
    records = [Record(b"key", b"value", NOON_MS)]
    process = up(port)
    client = ConfluentClient(f"127.0.0.1:{port}")
    with closing(client.writer()) as writer:
        writer.write("kept", records)
    process.stop()

    up(port)

    assert read_all(client, "kept", 1) == records


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_node_is_left_running_when_the_command_ends(up: Up, tmp_path: Path, number: signal.Signals) -> None:
    process = up(free_port())
    [node] = described_nodes(tmp_path)

    process.send_signal(number)

    eventually(lambda: not process.running, "the command to end")
    eventually(lambda: not is_running(node["pid"]), "the node to end")


def test_port_that_is_taken_is_named_in_one_sentence(up: Up, tmp_path: Path) -> None:
    port = free_port()
    up(port)
    command = [str(QUORATE), "up", "--port", str(port), "--data", str(tmp_path / "another")]
    second = ChildProcess(command, tmp_path / "second.log")

    eventually(lambda: not second.running, "the command to give up")

    assert str(port) in second.output()
    assert "Traceback" not in second.output()


def test_folder_in_use_is_refused_and_not_a_byte_of_it_changes(up: Up, tmp_path: Path) -> None:
    up(free_port())
    files = [*(tmp_path / "cluster").glob("node-*/node.toml"), tmp_path / "cluster" / "cluster.json"]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    command = [str(QUORATE), "up", "--port", str(free_port()), "--data", str(tmp_path / "cluster")]
    second = ChildProcess(command, tmp_path / "second.log")

    eventually(lambda: not second.running, "the command to give up")

    assert "is in use by another process: stop the cluster that runs there" in second.output()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before


def test_broker_configs_and_hand_edits_are_there_at_the_next_start(up: Up, tmp_path: Path) -> None:
    port = free_port()
    up(port).stop()
    file = tmp_path / "cluster" / "node-1" / "node.toml"
    file.write_text(file.read_text() + '"num.partitions" = 5\n')

    up(port)
    client = ConfluentClient(f"127.0.0.1:{port}")
    with closing(client.writer()) as writer:
        writer.write("made-with-the-default", [Record(b"key", b"value", NOON_MS)])

    with open_client(f"127.0.0.1:{port}") as admin:
        [topic] = admin.cluster.metadata(["made-with-the-default"]).topics.values()
        assert len(topic.partitions) == 5


def described_nodes(folder: Path) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads((folder / "cluster" / "cluster.json").read_text())["nodes"]
    return nodes


def is_running(pid: int) -> bool:
    """A process that has ended and is not yet collected by its parent does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state != "Z"
