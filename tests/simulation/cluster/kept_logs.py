"""Nothing is deleted for want of knowledge: a log goes only where a committed record says that it was removed.

Judged by the one truth, whatever the node that deletes believes to know: what was lost or restored from an old copy on
that node, or on all of them, makes no difference.
"""

from quorate.kernel.ids import NodeId, PartitionIndex, TopicId
from quorate.storage.checkpoints import read_topic_id
from quorate.storage.partition_folders import DELETED_SUFFIX, partition_index
from tests.simulation.cluster.findings import Findings
from tests.simulation.cluster.truth import Truth
from tests.simulation.disk import SimulatedDisk


class KeptLogs:
    name = "nothing is deleted for want of knowledge"

    def __init__(self, findings: Findings, truth: Truth) -> None:
        self._findings = findings
        self._truth = truth
        self._watched: set[int] = set()
        #: Logs that were deleted, and were to be.
        self.removed = 0

    def watch(self, node_id: NodeId, disk: SimulatedDisk) -> None:
        """From now on, over all lives of the node."""
        if id(disk) in self._watched:
            return
        self._watched.add(id(disk))
        rename, remove_tree = disk.rename, disk.remove_tree

        def watched_rename(source: str, target: str) -> None:
            if target.endswith(DELETED_SUFFIX):
                self._check(node_id, disk, source)
            rename(source, target)

        def watched_remove_tree(path: str) -> None:
            self._check(node_id, disk, path)
            remove_tree(path)

        disk.rename = watched_rename  # type: ignore[method-assign]
        disk.remove_tree = watched_remove_tree  # type: ignore[method-assign]

    def _check(self, node_id: NodeId, disk: SimulatedDisk, directory: str) -> None:
        index = partition_index(directory.rpartition("/")[2])
        topic_id = None if index is None else read_topic_id(disk, directory)
        if index is None or topic_id is None:
            return
        if self._was_removed(node_id, topic_id, index):
            self.removed += 1
        else:
            text = f"node {node_id} deletes {directory} of topic {topic_id}, which no record has taken from it"
            self._findings.report(self.name, text)

    def _was_removed(self, node_id: NodeId, topic_id: TopicId, index: PartitionIndex) -> bool:
        truth = self._truth
        return topic_id in truth.deleted or (topic_id, index, node_id) in truth.removed_replicas
