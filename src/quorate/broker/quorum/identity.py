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
        new_id = configured or new_cluster_id(new_uuid())
        disk.replace(path, f"version=1\nnode.id={node_id}\ncluster.id={new_id}\n".encode())
        return new_id
    kept_node_id, cluster_id = kept.get("node.id", ""), kept.get("cluster.id", "")
    if not kept_node_id or not cluster_id:
        raise QuorateError(f"{path} is damaged: it must name the node.id and the cluster.id that the folder belongs to")
    if kept_node_id != str(node_id):
        raise QuorateError(f"{data_dir} holds the data of node {kept_node_id}, not of node {node_id}")
    if configured is not None and cluster_id != configured:
        raise QuorateError(f"{data_dir} belongs to the cluster {cluster_id!r}, not to {configured!r}")
    return cluster_id


def _read(disk: Disk, path: str) -> dict[str, str] | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        lines = file.read(0, file.size()).decode(errors="replace").splitlines()
    finally:
        file.close()
    return dict(line.split("=", 1) for line in lines if "=" in line)
