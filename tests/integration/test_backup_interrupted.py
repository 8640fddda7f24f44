"""Backups that are stopped or killed: nothing is half committed, and the next run goes on."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import SMALL_RANGES, Backups, consume, create_topics, interrupt, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.process_tree import descendants

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(3600 if os.environ.get("QUORATE_HEAVY") else 300)

TOPIC = "orders"
PARTITIONS = 4
# Slow enough that a run can be stopped in the middle: 4 MB take 8 s.
SLOW = {"mode": "incremental", "rate_limit_bytes_per_second": 500_000, **SMALL_RANGES}
FAST = {"mode": "incremental", **SMALL_RANGES}
KILLS = 30 if os.environ.get("QUORATE_HEAVY") else 2


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic(TOPIC, PARTITIONS))
        produce(node.bootstrap, TOPIC, 16_000)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


def test_ctrl_c_stops_within_seconds_and_the_next_run_goes_on(node: QuorateNode, backups: Backups) -> None:
    process = _start_and_wait_for_objects(backups, backup=SLOW)
    workers = descendants(process.pid)
    asked = time.monotonic()
    stopped = interrupt(process)
    took_s = time.monotonic() - asked

    assert stopped.status == 130, stopped
    assert "quorate: stopped; what was committed stays" in stopped.errors
    assert "Traceback" not in stopped.errors
    assert took_s < 30  # Seconds on an idle machine; the bound only tells a stop from a hang.
    assert backups.catalog().numbers() == []
    _wait_until_ended(workers)

    done = backups.backup("--orphan-age-hours", "0", backup=FAST)
    assert done.status == 0, done
    assert "of unfinished runs deleted" in done.errors
    _assert_whole(node, backups)


def test_driver_killed_at_random_points_then_run_again_loses_and_repeats_nothing(
    node: QuorateNode, backups: Backups
) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        process = backups.start_backup(backup=SLOW)
        time.sleep(chance.uniform(2, 20))
        children = descendants(process.pid)
        process.kill()
        process.communicate()
        _wait_until_ended(children)
    done = backups.backup("--orphan-age-hours", "0", backup=FAST)
    assert done.status == 0, done
    _assert_whole(node, backups)


def test_continuous_backup_follows_the_log_and_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    with QuorateNode.start(tmp_path / "node", settings={"durability": "os"}) as node:
        backups = Backups(tmp_path, node.bootstrap)
        create_topics(node.bootstrap, NewTopic(TOPIC, 1))
        produce(node.bootstrap, TOPIC, 100)
        process = backups.start_backup(backup={"mode": "continuous", "continuous_interval_ms": 200})
        _wait_for_end_offset(backups, 100)
        produce(node.bootstrap, TOPIC, 100, first=100)
        _wait_for_end_offset(backups, 200)

        stopped = interrupt(process, signal.SIGTERM)

        assert stopped.status == 0, stopped
        assert "Traceback" not in stopped.errors
        assert backups.records(TOPIC, 0) == consume(node.bootstrap, TOPIC, 0)


def _start_and_wait_for_objects(backups: Backups, **sections: Any) -> "subprocess.Popen[str]":
    process = backups.start_backup(**sections)
    folder = backups.folder / "storage"
    eventually(
        lambda: process.poll() is not None or any(path.is_file() for path in folder.glob("*/topics/**/*")),
        "a task to write its first segment",
        within_s=120,
    )
    assert process.poll() is None, process.communicate()
    return process


def _wait_for_end_offset(backups: Backups, offset: int) -> None:
    def reached() -> bool:
        manifest = backups.catalog().latest()
        return manifest is not None and manifest.topics[0].partitions[0].end_offset == offset

    eventually(reached, f"a manifest up to offset {offset}", within_s=120)


def _assert_whole(node: QuorateNode, backups: Backups) -> None:
    """Every offset once, and no object that the manifest does not name."""
    for partition in range(PARTITIONS):
        assert backups.records(TOPIC, partition) == consume(node.bootstrap, TOPIC, partition)
    named = {Path(name).name for name in backups.manifest().object_names()}
    assert {path.name for path in backups.object_paths()} == named


def _wait_until_ended(pids: list[int]) -> None:
    eventually(lambda: not any(_is_alive(pid) for pid in pids), "Spark's processes to end", within_s=60)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
