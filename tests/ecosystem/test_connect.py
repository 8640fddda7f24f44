"""Kafka Connect in distributed mode: one file goes through a topic into another, across a worker's kill -9."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients.confluent import ConfluentClient
from tests.ecosystem.connect_worker import DEADLINE_S, ConnectWorker
from tests.ecosystem.programs import KAFKA_VERSION
from tests.eventually import eventually
from tests.peers.quorate_cluster import QuorateCluster

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("ecosystem_jars"), pytest.mark.timeout(4 * DEADLINE_S)]

TOPIC = "connect-lines"
LINES = 500


@pytest.fixture
def worker(cluster: QuorateCluster, tmp_path: Path) -> Iterator[ConnectWorker]:
    worker = ConnectWorker(tmp_path, cluster.bootstrap, "connect")
    worker.start()
    yield worker
    worker.kill()


@pytest.mark.proves("Kafka Connect", KAFKA_VERSION, "distributed mode, file source and sink, across a worker's kill -9")
def test_a_file_arrives_whole_though_the_worker_is_killed(
    cluster: QuorateCluster, worker: ConnectWorker, tmp_path: Path
) -> None:
    ConfluentClient(cluster.bootstrap).create_topic(TOPIC)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    append_lines(source, 0, LINES)
    file_stream = "org.apache.kafka.connect.file.FileStream"
    worker.create("from-file", connector_class=f"{file_stream}SourceConnector", file=str(source), topic=TOPIC)
    worker.create("to-file", connector_class=f"{file_stream}SinkConnector", file=str(target), topics=TOPIC)
    wait_until_copied(worker, source, target)
    # Only then would a line that comes twice be the broker's fault.
    eventually(lambda: worker.offsets("from-file") == [{"position": source.stat().st_size}], "source", DEADLINE_S)
    eventually(lambda: worker.offsets("to-file") == [{"kafka_offset": LINES}], "sink", DEADLINE_S)

    worker.kill()
    append_lines(source, LINES, 2 * LINES)
    worker.start()

    wait_until_copied(worker, source, target)


def append_lines(path: Path, start: int, stop: int) -> None:
    with path.open("a") as file:
        file.writelines(f"line {number}\n" for number in range(start, stop))


def wait_until_copied(worker: ConnectWorker, source: Path, target: Path) -> None:
    worker.wait_until_running("from-file", "to-file")
    size = source.stat().st_size
    eventually(lambda: target.exists() and target.stat().st_size >= size, f"{target.name} to grow", DEADLINE_S)
    assert target.read_text() == source.read_text()
