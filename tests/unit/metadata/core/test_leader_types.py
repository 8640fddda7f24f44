"""Two leaderships, two types: neither passes for the other before the type checker."""

from pathlib import Path

from mypy import api

SNIPPET = """
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, Term, TopicName
from quorate.kernel.ids import PartitionLeader, QuorumLeader
from quorate.metadata.core.commands import FormCluster
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.elections import preferred_leader_imbalance
from quorate.metadata.core.image import MetadataImage

def write_to(leader: PartitionLeader) -> None: ...
def propose_to(leader: QuorumLeader) -> None: ...

image = MetadataImage()
quorum = QuorumLeader(NodeId(1), Term(2))
partition = image.partition_leader(TopicName("orders"), PartitionIndex(0))
assert partition is not None

write_to(partition)
propose_to(quorum)
preferred_leader_imbalance(image, quorum)

write_to(quorum)  # refused
propose_to(partition)  # refused
preferred_leader_imbalance(image, partition)  # refused
write_to(NodeId(1))  # refused
partition == quorum  # refused

def decide(controller: Controller) -> None:
    controller.decide(image, FormCluster(), quorum_leader=quorum)
    controller.decide(image, FormCluster(), quorum_leader=partition)  # refused
"""


def test_a_quorum_leader_is_refused_where_a_partition_leader_is_meant_and_the_other_way_round(tmp_path: Path) -> None:
    snippet = tmp_path / "leaderships.py"
    snippet.write_text(SNIPPET)

    report, problems, _ = api.run(["--strict", "--follow-imports=silent", "--no-error-summary", str(snippet)])

    refused = [number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# refused")]
    assert problems == ""
    assert [int(line.split(":")[1]) for line in report.splitlines() if ": error:" in line] == refused
