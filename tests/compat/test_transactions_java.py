"""Transactions of the Java client: its checks are in ``java/TransactionChecks.java`` and run in one JVM."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.conftest import NodeUnderTest, running_node
from tests.peers.jars import java_command
from tests.proofs import JAVA

pytestmark = pytest.mark.peer

SOURCE = Path(__file__).parent / "java" / "TransactionChecks.java"
CHECKS_TIMEOUT_S = 240
# Transactions that are left behind are looked for often, not every ten seconds only.
CONFIGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
CHECKS = [
    "transaction version 2 is on",
    "committed records are read and aborted ones are not",
    "a transaction over many partitions is one",
    "every transaction has an epoch of its own",
    "a second instance fences the first",
    "a transaction that is left behind is aborted",
    "offsets are committed with the records",
    "offsets are not committed with an abort",
    "admin lists, describes and fences",
]


@pytest.fixture(scope="module")
def watchful_node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderTest]:
    with running_node(request.config, tmp_path_factory.mktemp("node"), CONFIGS) as running:
        yield running


@pytest.fixture(scope="module")
def outcomes(kafka_classpath: str, watchful_node: NodeUnderTest) -> dict[str, str | None]:
    """How each check failed; None for those that hold."""
    completed = subprocess.run(
        java_command(str(SOURCE), watchful_node.bootstrap),
        capture_output=True,
        text=True,
        timeout=CHECKS_TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    return {line["check"]: line["failure"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.proves(*JAVA, "transactions: commit, abort, fencing, timeout, offsets, admin")
def test_java_transactions(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None, outcomes[check]


def test_no_check_of_the_program_is_left_out(outcomes: dict[str, str | None]) -> None:
    assert list(outcomes) == CHECKS
