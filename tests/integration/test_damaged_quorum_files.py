"""Bits flipped in the quorum's own files of one of three nodes: it comes back by itself, with all that it had."""

import logging
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from quorate.kernel.ids import NodeId
from quorate.quorum.doubled_file import Finding
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic
from tests.rot import QUORUM_KINDS, Flip, carry_out, files_of, flip_random_bit, kinds_in

IDS = (7, 100, 4001)
ROTTEN = 100
_ROUNDS = 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, folder=tmp_path) as running:
        yield running


def check_files(cluster: ClusterInProcess) -> list[Finding]:
    return cluster._do(cluster._running[NodeId(ROTTEN)].served.node.quorum.check_files())


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_a_node_with_a_flipped_bit_in_a_file_of_each_kind_comes_back_sound(
    cluster: ClusterInProcess, tmp_path: Path, ends: str
) -> None:
    random, data_dir = Random(ends), tmp_path / f"node-{ROTTEN}"
    topic = ReplicatedTopic(cluster, "orders", IDS)
    for number in range(_ROUNDS):
        topic.write(b"%d" % number)
        end = cluster.stop if ends == "stopped" else cluster.kill
        end(ROTTEN)
        flips = [flip_random_bit(data_dir, QUORUM_KINDS[kind], random) for kind in kinds_in(data_dir)]
        assert len(flips) >= 6
        cluster.restart(ROTTEN)
        eventually(lambda: not (data_dir / "quorum-recovery").exists(), "the log is complete again")
        assert topic.read() == [b"%d" % each for each in range(number + 1)]


def test_damage_is_told_when_it_is_found_and_when_it_is_repaired(
    cluster: ClusterInProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = tmp_path / f"node-{ROTTEN}"
    ReplicatedTopic(cluster, "orders", IDS)
    cluster.stop(ROTTEN)
    (log,) = files_of(data_dir, QUORUM_KINDS["metadata log"])
    carry_out(Flip(str(log), 70, 3))
    with caplog.at_level(logging.INFO, logger="quorate"):
        cluster.restart(ROTTEN)
        eventually(lambda: "quorum log complete again node=100" in caplog.text, "it is told")
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.split(" node=")[0] for text in errors] == [
        "quorum file damaged",
        "quorum log incomplete after damage",
    ]
    assert str(log) in errors[0]
    assert (data_dir / "metadata-log.damaged").is_dir()


def test_a_bit_that_flips_while_the_node_runs_is_found_and_mended(
    cluster: ClusterInProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    random, data_dir = Random(5), tmp_path / f"node-{ROTTEN}"
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"kept")
    for kind in kinds_in(data_dir):
        if kind != "reserve":  # What is in it means nothing.
            flip = flip_random_bit(data_dir, QUORUM_KINDS[kind], random)
            found = check_files(cluster)
            assert flip.path in [finding.path for finding in found], flip
            assert check_files(cluster) == []
    topic.write(b"more")
    cluster.kill(ROTTEN)
    with caplog.at_level(logging.WARNING, logger="quorate"):
        caplog.clear()
        cluster.restart(ROTTEN)
    assert "damaged" not in caplog.text
    assert topic.read() == [b"kept", b"more"]
