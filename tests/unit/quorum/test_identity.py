from uuid import UUID

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import DirectoryId, NodeId
from quorate.quorum.identity import Identity, settle_identity
from tests.simulation.disk import SimulatedDisk
from tests.unit.quorum.quorum_disk import DATA_DIR, new_disk


def settle_all(disk: SimulatedDisk, node_id: int = 1, configured: str | None = None, uuid: int = 7) -> Identity:
    return settle_identity(disk, DATA_DIR, NodeId(node_id), configured, lambda: UUID(int=uuid))


def settle(disk: SimulatedDisk, node_id: int = 1, configured: str | None = None, uuid: int = 7) -> str:
    return settle_all(disk, node_id, configured, uuid).cluster_id


def test_a_cluster_id_that_was_made_up_is_kept_for_good() -> None:
    disk = new_disk()
    made_up = settle(disk, uuid=7)
    disk.crash()
    assert settle(disk, uuid=8) == made_up


def test_the_configured_cluster_id_is_taken_and_may_be_left_out_later() -> None:
    disk = new_disk()
    assert settle(disk, configured="blue") == "blue"
    assert settle(disk) == "blue"
    assert settle(disk, configured="blue") == "blue"


def test_a_folder_keeps_its_own_id_and_another_has_another() -> None:
    disk = new_disk()
    made = settle_all(disk, uuid=7)
    disk.crash()
    assert settle_all(disk, uuid=8) == made
    assert settle_all(new_disk(), uuid=8).directory_id != made.directory_id


def test_a_folder_from_before_there_were_ids_gets_one_for_good() -> None:
    disk = new_disk()
    disk.replace(f"{DATA_DIR}/meta.properties", b"version=1\nnode.id=1\ncluster.id=blue\n")
    assert settle_all(disk, uuid=8) == Identity(cluster_id="blue", directory_id=DirectoryId(UUID(int=8)))
    assert settle_all(disk, uuid=9).directory_id == UUID(int=8)


def test_the_folder_of_another_node_is_refused() -> None:
    disk = new_disk()
    settle(disk, node_id=1, configured="blue")
    with pytest.raises(QuorateError, match=r"^/data holds the data of node 1, not of node 2$"):
        settle(disk, node_id=2, configured="blue")


def test_the_folder_of_another_cluster_is_refused() -> None:
    disk = new_disk()
    settle(disk, configured="blue")
    with pytest.raises(QuorateError, match=r"^/data belongs to the cluster 'blue', not to 'green'$"):
        settle(disk, configured="green")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"node.id=1\n",
        b"cluster.id=blue\n",
        b"\xff\xfe\x00",
        b"node.id=1\ncluster.id=blue\ndirectory.id=7\n",
    ],
)
def test_a_damaged_file_is_refused_and_not_taken_for_a_new_node(content: bytes) -> None:
    disk = new_disk()
    disk.replace(f"{DATA_DIR}/meta.properties", content)
    with pytest.raises(QuorateError, match=r"^/data/meta.properties is damaged"):
        settle(disk)
