"""The metadata log removed, or restored from an older copy, on some or all of three stopped nodes: no data is lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.kernel.errors import QuorateError
from quorate.testing import ClusterInProcess
from tests.integration.replicated_topic import ReplicatedTopic

IDS = (7, 100, 4001)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, folder=tmp_path) as running:
        yield running


def log_of(folder: Path, node_id: int) -> Path:
    return folder / f"node-{node_id}" / "metadata-log"


def partitions(folder: Path) -> dict[str, bytes]:
    """Every log of the topic with its records, on all nodes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("node-*/orders-0/*.log")}


@pytest.mark.parametrize("losers", [IDS[:1], IDS[:2], IDS], ids=["a-minority", "a-majority", "all"])
def test_nodes_whose_metadata_log_is_missing_do_not_start_and_nothing_is_deleted(
    cluster: ClusterInProcess, tmp_path: Path, losers: tuple[int, ...]
) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"kept")
    cluster.stop(*IDS)
    before = partitions(tmp_path)
    assert len(before) == 3
    for node_id in losers:
        log_of(tmp_path, node_id).rename(tmp_path / f"taken-from-{node_id}")

    for node_id in losers:
        with pytest.raises(QuorateError, match="metadata-log is missing, but this node has been a member"):
            cluster.restart(node_id)
    assert partitions(tmp_path) == before

    for node_id in losers:
        (tmp_path / f"taken-from-{node_id}").rename(log_of(tmp_path, node_id))
    cluster.restart(*IDS)
    assert topic.read() == [b"kept"]


def test_the_others_go_on_without_a_node_that_lost_its_metadata_log(cluster: ClusterInProcess, tmp_path: Path) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"kept")
    cluster.kill(*IDS)
    shutil.rmtree(log_of(tmp_path, 7))

    cluster.restart(100, 4001)
    with pytest.raises(QuorateError, match="metadata-log is missing"):
        cluster.restart(7)

    topic.down.add(7)
    topic.write(b"more")
    assert topic.read() == [b"kept", b"more"]


def test_a_metadata_log_restored_from_an_older_copy_is_refused(cluster: ClusterInProcess, tmp_path: Path) -> None:
    cluster.stop(*IDS)
    for node_id in IDS:
        shutil.copytree(log_of(tmp_path, node_id), tmp_path / f"copy-{node_id}")
    cluster.restart(*IDS)
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"kept")
    cluster.kill(*IDS)
    before = partitions(tmp_path)
    for node_id in IDS:
        log_of(tmp_path, node_id).rename(tmp_path / f"newest-{node_id}")
        shutil.copytree(tmp_path / f"copy-{node_id}", log_of(tmp_path, node_id))

    for node_id in IDS:
        with pytest.raises(QuorateError, match="lacks what this node has acknowledged"):
            cluster.restart(node_id)
    assert partitions(tmp_path) == before

    for node_id in IDS:
        shutil.rmtree(log_of(tmp_path, node_id))
        (tmp_path / f"newest-{node_id}").rename(log_of(tmp_path, node_id))
    cluster.restart(*IDS)
    assert topic.read() == [b"kept"]


def test_a_majority_that_lost_its_metadata_goes_on_with_that_of_a_node_which_is_whole(
    cluster: ClusterInProcess, tmp_path: Path
) -> None:
    """As docs/missing-files.md says."""
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"kept")
    cluster.kill(*IDS)
    whole = tmp_path / "node-4001"
    for node_id in (7, 100):
        folder = tmp_path / f"node-{node_id}"
        shutil.rmtree(folder / "metadata-log")
        for name in ("quorum-state", "quorum-snapshot", "quorum-acknowledged"):
            (folder / name).unlink(missing_ok=True)
        shutil.copytree(whole / "metadata-log", folder / "metadata-log")
        shutil.copy(whole / "quorum-state", folder / "quorum-state")

    cluster.restart(*IDS)

    assert topic.read() == [b"kept"]
