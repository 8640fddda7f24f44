"""kill -9 of the processes that do the work: executors of a Spark cluster, Python workers there and on this machine.

The run goes on or ends with an error; after another run no offset is missing, none is there twice, and nothing lies
about that no manifest names.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import Backups, Finished, consume, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.process_tree import command_of, descendants

pytest.importorskip("pyspark")

from tests.spark_cluster import StandaloneCluster, standalone_cluster

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
pytestmark = pytest.mark.timeout(1800 if IS_HEAVY else 600)

MIB = 1024 * 1024
TOPIC = "orders"
PARTITIONS = 4
RECORDS = 48_000
VALUE_BYTES = 1_000
# A task for each partition, of several fetches: between them it waits for its share of the limit, a segment open.
FAST = {"mode": "incremental", "compression": "none", "range_bytes": 16 * MIB, "segment_max_bytes": 5 * MIB}
SLOW = FAST | {"rate_limit_bytes_per_second": 4_000_000}
KILLS = 10 if IS_HEAVY else 2
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, PARTITIONS))
        produce(node.bootstrap, TOPIC, RECORDS, value_size=VALUE_BYTES)
        yield node


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("spark"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


def test_executors_of_a_cluster_are_killed(node: QuorateNode, backups: Backups, cluster: StandaloneCluster) -> None:
    def victims(process: "subprocess.Popen[str]") -> list[int]:
        return [each for each in _executors(cluster) if _writers(each, backups)]

    first = _back_up_under_kills(backups, victims, "--master", cluster.master)
    _run_again_and_compare(node, backups, first)


def test_python_workers_of_a_cluster_are_killed(
    node: QuorateNode, backups: Backups, cluster: StandaloneCluster
) -> None:
    def victims(process: "subprocess.Popen[str]") -> list[int]:
        return [writer for each in _executors(cluster) for writer in _writers(each, backups)]

    first = _back_up_under_kills(backups, victims, "--master", cluster.master)
    again = _run_again_and_compare(node, backups, first)
    assert "of unfinished runs deleted" in again.errors


def test_python_workers_of_this_machine_are_killed(node: QuorateNode, backups: Backups) -> None:
    first = _back_up_under_kills(backups, lambda process: _writers(process.pid, backups), "--master", "local[2]")
    again = _run_again_and_compare(node, backups, first)
    assert "of unfinished runs deleted" in again.errors


def _back_up_under_kills(
    backups: Backups, victims: Callable[["subprocess.Popen[str]"], list[int]], *options: str
) -> Finished:
    """Victims are those at work on a segment; who of them and when, chance says."""
    chance = random.Random(7)
    process = backups.start_backup(*options, backup=SLOW)
    killed = 0
    while killed < KILLS and process.poll() is None:
        alive = victims(process)
        if alive:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(alive), signal.SIGKILL)
                killed += 1
        time.sleep(chance.uniform(0.2, 1.5))
    output, errors = process.communicate(timeout=400)
    assert killed == KILLS, f"the backup ended before: {output}{errors}"
    return Finished(process.returncode, output, errors)


def _run_again_and_compare(node: QuorateNode, backups: Backups, first: Finished) -> Finished:
    assert "Traceback" not in first.errors, first
    # A few lost attempts are made good by Spark; with more it may give up, and then nothing is committed.
    assert (first.status, backups.catalog().numbers()) in ((0, [1]), (1, [])), first
    if not IS_HEAVY:
        assert first.status == 0, first
    _wait_until_nobody_writes(backups)
    again = backups.backup("--orphan-age-hours", "0", backup=FAST)
    assert again.status == 0, again
    for partition in range(PARTITIONS):
        assert backups.records(TOPIC, partition) == consume(node.bootstrap, TOPIC, partition)
    root = backups.folder / "storage" / "nightly"
    left = {str(path.relative_to(root)) for path in (root / "topics").rglob("*") if path.is_file()}
    assert left == backups.manifest().object_names()
    assert backups.verify().status == 0
    return again


def _written(backups: Backups) -> list[Path]:
    return [path for path in (backups.folder / "storage").glob("*/topics/**/*") if path.is_file()]


def _wait_until_nobody_writes(backups: Backups) -> None:
    """A Python worker may outlive its executor for a moment."""

    def is_quiet() -> bool:
        before = {path: path.stat().st_size for path in _written(backups)}
        time.sleep(2)
        return before == {path: path.stat().st_size for path in _written(backups)}

    eventually(is_quiet, "the last worker to end", within_s=60)


def _executors(cluster: StandaloneCluster) -> list[int]:
    return [pid for worker in cluster.workers for pid in descendants(worker.pid) if EXECUTOR in command_of(pid)]


def _writers(root: int, backups: Backups) -> list[int]:
    """The Python workers below a process that have a segment open."""
    return [pid for pid in descendants(root) if any(backups.folder in Path(each).parents for each in _open_files(pid))]


def _open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(link))
    return [each for each in found if each.endswith(".partial")]
