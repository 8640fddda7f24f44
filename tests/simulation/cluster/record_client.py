"""A client that writes records with acks=all and reads them, at whomever some node takes for the partition's leader."""

from collections.abc import Callable
from random import Random

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from tests.simulation.cluster.cluster import Member, SimulatedCluster
from tests.simulation.cluster.connections import Connections, NoAnswer

_TOPIC = TopicName("records")
_PARTITIONS = (PartitionIndex(0), PartitionIndex(1))
_PRODUCE_VERSION, _FETCH_VERSION = 9, 12
_RETRY_S = 0.1


class RecordClient:
    """Sends each record once: what was not acknowledged may be there or not, but never twice."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._random = Random(f"{cluster.world.seed}/records")
        self._connections = Connections(cluster)
        self._counter = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        await self._create_topic()
        while not is_over():
            partition = self._random.choice(_PARTITIONS)
            if self._random.random() < 0.7:
                await self._write(partition)
            else:
                await self._read(partition, self._random.randrange(20))
            await self._cluster.world.sleep(self._random.random() * self._cluster.shape.think_s * 2)

    async def check_all(self) -> None:
        """Read everything, from the partitions that somebody in sync is left of."""
        image = self._cluster.truth.latest
        present = {member.node_id for member in self._cluster.present}
        for partition in _PARTITIONS:
            state = image.partition(_TOPIC, partition)
            if state is None or not present.intersection(state.isr):
                continue
            while (found := await self._read(partition, 0)) is None:
                await self._cluster.world.sleep(_RETRY_S)
            self._cluster.records.check_all(partition, found)

    async def _create_topic(self) -> None:
        self._cluster.ledger.asks_for_topic(_TOPIC)
        factor = min(3, len(self._cluster.shape.voters))
        topic = CreatableTopic(name=_TOPIC, num_partitions=len(_PARTITIONS), replication_factor=factor)
        while not any(_TOPIC in member.view.image.topics for member in self._cluster.present if member.is_serving):
            try:
                member = self._random.choice(self._cluster.present)
                await self._connections.ask(member, CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
            except NoAnswer:
                await self._cluster.world.sleep(_RETRY_S)

    async def _write(self, partition: PartitionIndex) -> None:
        leader = self._leader(partition)
        if leader is None:
            return
        self._counter += 1
        values = [b"%d.%d" % (self._counter, index) for index in range(self._random.randint(1, 3))]
        batch = build_batch(Record(Offset(index), 0, None, value) for index, value in enumerate(values))
        data = TopicProduceData(name=_TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        try:
            answer, _ = await self._connections.ask(leader, request, _PRODUCE_VERSION, ProduceResponse)
        except NoAnswer:
            return
        (result,) = answer.responses[0].partition_responses
        if self._cluster.ledger.answered(result.error_code) is ErrorCode.NONE:
            for index, value in enumerate(values):
                self._cluster.records.acknowledged(partition, result.base_offset + index, value)

    async def _read(self, partition: PartitionIndex, offset: int) -> dict[int, bytes] | None:
        """From an offset to the high watermark; None where the leader did not answer, or said that it is none."""
        found: dict[int, bytes] = {}
        while True:
            leader = self._leader(partition)
            if leader is None:
                return None
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=_TOPIC, partitions=[wanted])])
            try:
                answer, _ = await self._connections.ask(leader, request, _FETCH_VERSION, FetchResponse)
            except NoAnswer:
                return None
            (data,) = answer.responses[0].partitions
            error = self._cluster.ledger.answered(data.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
            if error is not ErrorCode.NONE:
                return None
            if not isinstance(data.records, memoryview) or not data.records:
                return found
            for position, header in iterate_batches(data.records, strict=True):
                for record in iterate_records(data.records, position):
                    if record.offset >= offset:
                        found[record.offset] = record.value or b""
                        self._cluster.records.read(partition, record.offset, record.value or b"")
                offset = header.next_offset

    def _leader(self, partition: PartitionIndex) -> Member | None:
        """As some node sees it: what Metadata would say."""
        told = self._random.choice(self._cluster.present).view.image.partition_leader(_TOPIC, partition)
        if told is None:
            return None
        return next(member for member in self._cluster.members if member.node_id == told.node_id)
