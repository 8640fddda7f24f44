"""What a ksqlDB server asks of a cluster, in its order, by ``java/KsqlCalls.java``: the server itself cannot be had."""

from pathlib import Path

import pytest

from tests.ecosystem.programs import FOLDER, KAFKA_VERSION, start_java
from tests.peers.quorate_cluster import QuorateCluster

PROGRAM = str(FOLDER / "java" / "KsqlCalls.java")
# Generous: it only keeps a broken broker from hanging the tests.
DEADLINE_S = 150
PARTS = ["cluster", "command topic", "commands", "streams and tables", "dropped"]

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("ecosystem_jars"), pytest.mark.timeout(2 * DEADLINE_S)]


@pytest.mark.proves("Java client", KAFKA_VERSION, "the calls of a ksqlDB server: start, command topic, CREATE and DROP")
def test_calls_of_a_ksqldb_server_are_answered(cluster: QuorateCluster, tmp_path: Path) -> None:
    program = start_java(PROGRAM, cluster.bootstrap, log=tmp_path / "ksql.log")
    try:
        program.wait_for_output(said_all, "all parts of the program", DEADLINE_S)
    finally:
        program.kill()


def said_all(output: str) -> str | None:
    said = [line for line in output.splitlines() if line in PARTS]
    return said[-1] if said == PARTS else None
