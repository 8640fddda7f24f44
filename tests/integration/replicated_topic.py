"""Requests about one topic of a cluster, each to a node of the test's choice."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import fetch, metadata, produce
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from tests.eventually import eventually
from tests.integration.wire_client import WireClient


class Nodes(Protocol):
    """A cluster: inside of the test's process, or of processes."""

    @property
    def node_ids(self) -> tuple[int, ...]: ...

    def address_of(self, node_id: int) -> str: ...

    def kill(self, *node_ids: int) -> None: ...

    def restart(self, *node_ids: int) -> None: ...


class ReplicatedTopic:
    """One topic with one partition on the replicas that are named; any node that runs is asked about it."""

    def __init__(
        self, cluster: Nodes, name: str, replicas: Sequence[int], configs: dict[str, str] | None = None
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.down: set[int] = set()
        assignment = create.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = create.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assignment],
            configs=[create.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        with self.connect(replicas[0]) as client:
            request = create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = client.call(request, 7, create.CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        self.wait_for_leader(replicas[0])

    def connect(self, node_id: int) -> WireClient:
        return WireClient(self.cluster.address_of(node_id))

    def kill(self, node_id: int) -> None:
        self.cluster.kill(node_id)
        self.down.add(node_id)

    def restart(self, node_id: int) -> None:
        self.cluster.restart(node_id)
        self.down.discard(node_id)

    def describe(self, node_id: int | None = None) -> metadata.MetadataResponsePartition:
        asked = next(n for n in self.cluster.node_ids if n not in self.down) if node_id is None else node_id
        topics = [metadata.MetadataRequestTopic(name=self.name)]
        with self.connect(asked) as client:
            request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            return client.call(request, 9, metadata.MetadataResponse).topics[0].partitions[0]

    def wait_for_leader(self, *among: int) -> int:
        """The node that leads, once it is one of these and says so itself."""

        def look() -> int | None:
            leader = self.describe().leader_id
            return leader if leader in among and self.describe(leader).leader_id == leader else None

        return eventually(look, f"{self.name} to be led by one of {among}")

    def wait_for_isr(self, *nodes: int) -> None:
        eventually(lambda: set(self.describe().isr_nodes) == set(nodes), f"{self.name} to be in sync on {nodes}")

    def produce(
        self,
        node_id: int,
        *values: bytes,
        acks: int = -1,
        version: int = 11,
        producer_id: int | None = None,
        sequence: int = 0,
        timeout_ms: int = 20_000,
    ) -> produce.ProduceResponse:
        records = [Record(Offset(index), 1_700_000_000_000, None, value) for index, value in enumerate(values)]
        batch = (
            build_batch(records)
            if producer_id is None
            else build_batch(
                records,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                base_sequence=sequence,
            )
        )
        data = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name=self.name, partition_data=[data])
        with self.connect(node_id) as client:
            request = produce.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
            return client.call(request, version, produce.ProduceResponse)

    def write(self, *values: bytes, acks: int = -1) -> int:
        """To the leader, which has to take it; returns the offset."""
        leader = self.wait_for_leader(*self.cluster.node_ids)
        answer = self.produce(leader, *values, acks=acks).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.base_offset

    def fetch(self, node_id: int, *, version: int = 12, offset: int = 0) -> fetch.FetchResponse:
        partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        with self.connect(node_id) as client:
            if version < 13:
                topic = fetch.FetchTopic(topic=self.name, partitions=[partition])
            else:
                topic = fetch.FetchTopic(topic_id=self._topic_id(client), partitions=[partition])
            request = fetch.FetchRequest(
                max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
            )
            return client.call(request, version, fetch.FetchResponse)

    def read(self, offset: int = 0) -> list[bytes]:
        """Everything that is committed, from the leader."""
        leader = self.wait_for_leader(*self.cluster.node_ids)
        data = self.fetch(leader, offset=offset).responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE, data
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        batches = bytes(records)
        found = [record for position, _ in iterate_batches(batches) for record in iterate_records(batches, position)]
        return [bytes(record.value or b"") for record in found if record.offset >= offset]

    def _topic_id(self, client: WireClient) -> UUID:
        topics = [metadata.MetadataRequestTopic(name=self.name)]
        request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return client.call(request, 10, metadata.MetadataResponse).topics[0].topic_id
