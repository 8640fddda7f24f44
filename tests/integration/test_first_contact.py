"""An address at which nobody listens, or nobody answers: said within two seconds, and given up when the user says."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate.client.config import ClientConfig
from quorate.client.first_contact import NoAnswer, require_answer
from quorate.testing import ClusterInProcess
from quorate.testing.cluster_in_process import free_ports
from tests.backup_commands import QUORATE

STORAGE = "file:///tmp/quorate-no-such-storage"


@pytest.fixture(params=["nobody listens", "nobody answers"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "nobody listens":
        yield f"127.0.0.1:{free_ports(1)[0]}"
        return
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


def test_user_is_told_before_the_retries_are_over(address: str) -> None:
    told: list[tuple[float, str]] = []
    started = time.monotonic()

    with pytest.raises(NoAnswer, match=f"no broker answered at {address} within 3 s"):
        require_answer(
            ClientConfig(bootstrap_servers=(address,)), 3, lambda line: told.append((time.monotonic() - started, line))
        )

    [(after_s, line)] = told
    ended_s = time.monotonic() - started
    assert line == f"no answer from {address} yet; trying for 3 s (--timeout)"
    assert after_s < 0.75 * ended_s  # And not only with the failure.


def test_cluster_that_answers_is_not_talked_about() -> None:
    told: list[str] = []
    with ClusterInProcess(nodes=1) as cluster:
        require_answer(ClientConfig(bootstrap_servers=(cluster.bootstrap_servers,)), 30, told.append)
    assert told == []


def test_one_server_that_is_down_does_not_use_up_the_time_of_the_others(address: str) -> None:
    with ClusterInProcess(nodes=1) as cluster:
        require_answer(ClientConfig(bootstrap_servers=(address, cluster.bootstrap_servers)), 30, lambda _: None)


@pytest.mark.parametrize("command", ["topics", "status", "backup", "restore", "export", "offsets"])
def test_every_command_says_what_it_tries_and_ends_with_the_timeout(command: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = subprocess.run(
        [str(QUORATE), *_arguments(command, address, tmp_path), "--timeout", "2"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAVA_HOME": str(tmp_path / "nowhere")},  # The cluster is asked before Spark is started.
    )

    assert done.returncode == 1
    told, failed = done.stderr.strip().splitlines()
    assert f"no answer from {address} yet; trying for 2 s (--timeout)" in told
    assert failed.startswith(f"quorate: no broker answered at {address} within 2 s: cannot connect to {address}")


def _arguments(command: str, address: str, folder: Path) -> list[str]:
    section: dict[str, Any]
    match command:
        case "topics":
            return ["topics", "list", "--bootstrap-server", address]
        case "status":
            return ["cluster", "status", "--bootstrap-server", address]
        case "export":
            return ["export", "--bootstrap-servers", address, "--output", str(folder / "table")]
        case "backup":
            section = {"source": {"bootstrap_servers": [address], "topics": {"include": ["*"]}}}
        case _:
            section = {"target": {"bootstrap_servers": [address]}}
    file = folder / "file.yaml"
    file.write_text(yaml.safe_dump({"backup_id": "nightly", "storage": {"url": STORAGE}} | section))
    return [*(["offsets", "show"] if command == "offsets" else [command]), "--config", str(file)]
