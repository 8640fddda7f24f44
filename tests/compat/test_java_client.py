"""The Java client: its checks are in ``java/ClientChecks.java`` and run in one JVM, since a start costs seconds."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.peers.jars import java_command
from tests.proofs import JAVA

pytestmark = pytest.mark.peer

SOURCE = Path(__file__).parent / "java" / "ClientChecks.java"
CHECKS_TIMEOUT_S = 240
CHECKS = [
    "records come back as sent with codec none",
    "records come back as sent with codec gzip",
    "records come back as sent with codec snappy",
    "records come back as sent with codec lz4",
    "records come back as sent with codec zstd",
    "producer is idempotent by default",
    "every level of acknowledgement",
    "record above the limit is refused",
    "seek by time and to both ends",
    "waiting consumer gets a later record",
    "members share and take over partitions, eagerly",
    "members share and take over partitions, cooperatively",
    "static member comes back",
    "group goes on after what it committed",
    "subscription by pattern finds later topics",
    "topic is deleted and comes back under open clients",
    "admin: topics",
    "admin: a hundred topics in one request",
    "admin: configs",
    "admin: records and offsets",
    "admin: groups",
    "admin: producers",
    "admin: cluster and log directories",
]


@pytest.fixture(scope="module")
def outcomes(kafka_classpath: str, bootstrap: str) -> dict[str, str | None]:
    """How each check failed; None for those that hold."""
    completed = subprocess.run(
        java_command(str(SOURCE), bootstrap), capture_output=True, text=True, timeout=CHECKS_TIMEOUT_S, check=False
    )
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    return {line["check"]: line["failure"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.proves(*JAVA, "producer, consumer, classic groups and admin: 23 checks")
def test_java_client(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None, outcomes[check]


def test_no_check_of_the_program_is_left_out(outcomes: dict[str, str | None]) -> None:
    assert list(outcomes) == CHECKS
