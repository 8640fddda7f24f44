"""Moving partitions between the brokers of a test cluster."""

from collections.abc import Sequence

from quorate.client.cluster import Cluster
from quorate.client.config import ClientConfig
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, TopicName
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from quorate.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.eventually import eventually

PREFERRED = 0


class Leadership:
    """Where partitions are led. Has connections of its own, so that clients under test learn nothing from it."""

    def __init__(self, bootstrap: str) -> None:
        self._cluster = Cluster(ClientConfig(bootstrap_servers=tuple(bootstrap.split(","))))

    def leader(self, topic: str, partition: int = 0) -> NodeId | None:
        found = self._cluster.metadata([TopicName(topic)]).topics[TopicName(topic)].partitions
        return found[partition].leader if partition in found else None  # type: ignore[index]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self._cluster.metadata([TopicName(topic)]).topics[TopicName(topic)].partitions[partition].isr)  # type: ignore[index]

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        wanted = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        answer = self._cluster.ask_controller(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[wanted])]),
            AlterPartitionReassignmentsResponse,
        )
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer

    def move(self, topic: str, partition: int, to: int) -> None:
        """Make another replica the leader: put it first, and elect the preferred one."""
        found = self._cluster.metadata([TopicName(topic)]).topics[TopicName(topic)].partitions[partition]  # type: ignore[index]
        self.reassign(topic, partition, [to, *(replica for replica in found.replicas if replica != to)])

        def elected() -> bool:
            answer = self._cluster.ask_controller(
                ElectLeadersRequest(
                    election_type=PREFERRED, topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])]
                ),
                ElectLeadersResponse,
            )
            code = answer.replica_election_results[0].partition_result[0].error_code
            return code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED) and self.leader(topic, partition) == to

        eventually(elected, f"{topic}-{partition} to be led by {to}")

    def close(self) -> None:
        self._cluster.close()
