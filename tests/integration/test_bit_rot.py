"""Bits that flip on the disk of a node, stopped or running: found, never served, and repaired from another replica."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from quorate.cli.commands import app
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.fetch import PartitionData
from quorate.records.batch import iterate_batches
from quorate.records.record import iterate_records
from quorate.testing import ClusterInProcess
from tests.chaos.rot import CONFIGS, HOWS, Campaign, ProcessNodes
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic
from tests.peers.quorate_cluster import QuorateCluster
from tests.rot import flip_random_bit

IDS = (7, 100, 4001)
ROTTEN = 7
VALUES = [b"value %d " % number * 6_000 for number in range(60)]
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}
QUICK_SCRUB = {"log.scrub.bytes.per.second": str(1 << 30), "log.scrub.interval.ms": "100"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, folder=tmp_path, configs=QUICK_SCRUB) as running:
        yield running


def filled(cluster: ClusterInProcess, replicas: tuple[int, ...] = IDS) -> ReplicatedTopic:
    topic = ReplicatedTopic(cluster, "orders", replicas, SMALL_SEGMENTS)
    for value in VALUES:
        topic.write(value)
    return topic


def folder_of(tmp_path: Path, node_id: int) -> Path:
    return tmp_path / f"node-{node_id}" / "orders-0"


def logs(tmp_path: Path, node_id: int) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder_of(tmp_path, node_id).glob("*.log"))}


def values_of(data: PartitionData) -> dict[int, bytes]:
    records = data.records or b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return {
        int(record.offset): bytes(record.value or b"")
        for position, _ in iterate_batches(bytes(records))
        for record in iterate_records(bytes(records), position)
    }


def read_all(topic: ReplicatedTopic) -> dict[int, bytes | ErrorCode]:
    """What a consumer gets, offset by offset: a value, or the error that it would meet there."""
    found: dict[int, bytes | ErrorCode] = {}
    offset = 0
    while offset < len(VALUES):
        leader = topic.wait_for_leader(*IDS)
        data = topic.fetch(leader, offset=offset).responses[0].partitions[0]
        code = ErrorCode(data.error_code)
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
            continue  # As clients do.
        if code is not ErrorCode.NONE:
            found[offset] = code
            offset += 1
            continue
        values = values_of(data)
        found |= values
        offset = max(values, default=offset) + 1 if values else offset
    return found


EXPECTED = dict(enumerate(VALUES))


@pytest.mark.parametrize("seed", range(4))
def test_a_bit_that_flips_in_a_log_of_a_stopped_node_is_not_served_and_is_repaired(
    cluster: ClusterInProcess, tmp_path: Path, seed: int
) -> None:
    topic = filled(cluster)
    cluster.stop(ROTTEN)
    before = logs(tmp_path, ROTTEN)
    flip_random_bit(tmp_path / f"node-{ROTTEN}", "orders-0/*.log", Random(seed))
    assert logs(tmp_path, ROTTEN) != before

    cluster.restart(ROTTEN)
    topic.wait_for_isr(*IDS)
    topic.wait_for_leader(ROTTEN)  # It gets the lead back, as the first of the replicas.

    assert read_all(topic) == EXPECTED
    eventually(lambda: logs(tmp_path, ROTTEN) == logs(tmp_path, 100), "the log to be repaired")


def test_a_bit_that_flips_under_a_running_leader_is_found_and_repaired_and_another_one_leads_meanwhile(
    cluster: ClusterInProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = filled(cluster)
    topic.wait_for_leader(ROTTEN)
    before = logs(tmp_path, ROTTEN)
    with caplog.at_level(logging.INFO):
        flip_random_bit(tmp_path / f"node-{ROTTEN}", "orders-0/*.log", Random(1))
        eventually(lambda: logs(tmp_path, ROTTEN) == before, "the log to be repaired")
        eventually(lambda: "log repaired partition=orders-0" in caplog.text, "the repair to be told")

    assert "log damaged partition=orders-0" in caplog.text
    assert "leadership handed over partition=orders-0" in caplog.text
    assert read_all(topic) == EXPECTED


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_what_the_scrub_has_found_and_how_far_it_is_can_be_seen(
    cluster: ClusterInProcess, tmp_path: Path, command: str
) -> None:
    filled(cluster)
    before = logs(tmp_path, ROTTEN)
    flip_random_bit(tmp_path / f"node-{ROTTEN}", "orders-0/*.log", Random(1))
    eventually(lambda: logs(tmp_path, ROTTEN) == before, "the log to be repaired")

    arguments = ["cluster", command, "--bootstrap-server", cluster.bootstrap_servers]
    told = re.compile(rf"node {ROTTEN}: \d+ % of .* are checked in this pass, .*; damage found .*: 1, repaired: 1")
    eventually(lambda: told.search(CliRunner().invoke(app, arguments).output), f"{command} to tell of it")


def test_without_a_sound_replica_the_damaged_range_is_refused_and_everything_else_is_served(
    cluster: ClusterInProcess, tmp_path: Path
) -> None:
    topic = filled(cluster, (ROTTEN,))
    cluster.stop(ROTTEN)
    flip_random_bit(tmp_path / f"node-{ROTTEN}", "orders-0/*.log", Random(2))
    cluster.restart(ROTTEN)

    found = read_all(topic)

    damaged = [offset for offset, value in found.items() if value is ErrorCode.CORRUPT_MESSAGE]
    assert len(damaged) == 1
    assert {offset: value for offset, value in found.items() if offset not in damaged} == {
        offset: value for offset, value in EXPECTED.items() if offset not in damaged
    }


@pytest.mark.parametrize("how", HOWS)
def test_bits_that_flip_in_files_of_every_kind_are_all_repaired_and_none_is_served(how: str, tmp_path: Path) -> None:
    """A few of what ``make rot`` does."""
    with QuorateCluster(tmp_path, configs=CONFIGS) as processes:
        campaign = Campaign(ProcessNodes(processes), processes.bootstrap, list(processes.nodes), seed=len(how))
        campaign.create()
        campaign.round(how, flips=12)
        assert campaign.flips.total() >= 8
