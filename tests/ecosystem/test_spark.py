"""Spark's own Kafka connector from PySpark: batch and Structured Streaming, reading and writing."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest

from benchmarks.contenders.connector_jars import STAND_IN_VERSIONS, stand_in_connector
from tests.compat.clients.confluent import ConfluentClient
from tests.ecosystem.spark_queries import ROWS
from tests.peers.jars import PeersUnavailableError
from tests.peers.quorate_cluster import QuorateCluster

PROGRAM = Path(__file__).parent / "spark_queries.py"
# Generous: it only keeps a broken broker from hanging the tests.
PROGRAM_TIMEOUT_S = 600
PARTITIONS = 3
TOPICS = ("spark-batch", "spark-source", "spark-target")
pytestmark = pytest.mark.timeout(PROGRAM_TIMEOUT_S + 120)

SPARK = ("Spark's Kafka connector", f"{STAND_IN_VERSIONS[0]} on PySpark {pyspark.__version__}")


@pytest.fixture(scope="module")
def results(cluster: QuorateCluster, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_queries(cluster.bootstrap, TOPICS, tmp_path_factory.mktemp("checkpoint"))


def run_queries(bootstrap: str, topics: Sequence[str], folder: Path, settings: Mapping[str, str] | None = None) -> Any:
    """What the program has read. ``settings`` are those of Spark's clients alone, in Kafka's names."""
    try:
        jars = ",".join(str(jar) for jar in stand_in_connector().jars)
    except PeersUnavailableError as error:
        pytest.skip(str(error))
    for topic in topics:
        ConfluentClient(bootstrap).create_topic(topic, PARTITIONS)
    clients = json.dumps({"bootstrap.servers": bootstrap, **(settings or {})})
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), jars, clients, *topics, str(folder)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-8000:]
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.proves(*SPARK, "batch: write, read, keys, headers, partitions, offsets")
def test_a_batch_of_rows_comes_back_as_it_was_written(results: Any) -> None:
    check_batch(results)


def check_batch(results: Any) -> None:
    batch = results["batch"]
    assert batch["rows"] == sorted([f"key-{number}", number, ["kind=number"]] for number in range(ROWS))
    assert batch["partitions"] == list(range(PARTITIONS))
    assert batch["offsets"] == list(range(len(batch["offsets"])))


@pytest.mark.proves(*SPARK, "Structured Streaming: source and sink, going on from a checkpoint")
def test_a_stream_goes_on_where_its_checkpoint_ends(results: Any) -> None:
    check_stream(results)


def check_stream(results: Any) -> None:
    streaming = results["streaming"]
    assert streaming["after_first"] == [2 * number for number in range(ROWS)]
    assert streaming["after_second"] == [2 * number for number in range(2 * ROWS)]
