"""Who a node is, for good: its id and its cluster's, kept in ``meta.properties`` in the data folder."""

from collections.abc import Callable
from uuid import UUID

from quorate.kernel.disk import Disk
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.cluster_ids import new_cluster_id

_FILE = "meta.properties"


def settle_cluster_id(
    disk: Disk, data_dir: str, node_id: NodeId, configured: str | None, new_uuid: Callable[[], UUID]
) -> str:
    """The cluster that the data folder belongs to. A folder of another node or cluster is refused."""
    path = f"{data_dir}/{_FILE}"
    kept = _read(disk, path)
    if kept is None:
        cluster_id = configured or new_cluster_id(new_uuid())
        content = f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n"
        disk.replace(path, content.encode())
        return cluster_id
    if kept.get("node.id") != str(node_id):
        raise QuorateError(f"{data_dir} holds the data of node {kept.get('node.id')}, not of node {node_id}")
    cluster_id = kept.get("cluster.id", "")
    if configured is not None and cluster_id != configured:
        raise QuorateError(f"{data_dir} belongs to the cluster {cluster_id!r}, not to {configured!r}")
    return cluster_id


def _read(disk: Disk, path: str) -> dict[str, str] | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        lines = file.read(0, file.size()).decode().splitlines()
    finally:
        file.close()
    return dict(line.split("=", 1) for line in lines if "=" in line)
