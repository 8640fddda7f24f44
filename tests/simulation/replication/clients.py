"""Clients that find the leader by themselves, write until they are told so, and read from any replica."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicName
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.protocol.schema import Request, Response
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History, HistoryBroken
from tests.simulation.world.kafka_connection import KafkaConnection
from tests.simulation.world.served_node import PORT

R = TypeVar("R", bound=Response)

TOPIC = "orders"
PARTITION_COUNT = 2
_PRODUCE_TIMEOUT_MS = 4_000
#: What a client is to try again, with or without a look at the metadata.
RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
#: What an idempotent producer is told where its last records are gone: it begins anew.
_SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class NoAnswer(Exception):
    """The connection could not be made or ended, or nothing came in time."""


class Client:
    """Runs on the clients' host."""

    answer_timeout_s = 6.0

    def __init__(self, cluster: ReplicatedCluster, history: History, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history = history
        self.name = name
        self.random = Random(f"{cluster.world.seed}/{name}")
        self._connections: dict[int, KafkaConnection] = {}
        self.leaders: dict[int, int] = {}
        self.is_over = False

    async def run(self) -> None:
        """Until it is over."""
        raise AssertionError(f"{self.name} has nothing to do")

    async def call(self, node_id: int, request: Request, version: int, kind: type[R]) -> R:
        connection = self._connections.get(node_id)
        try:
            if connection is None or not connection.is_open:
                connection = await KafkaConnection.open(self.cluster.address_of(node_id), PORT, self.name)
                self._connections[node_id] = connection
            return await connection.call(request, version, kind, timeout_s=self.answer_timeout_s)
        except (OSError, TimeoutError):
            stale = self._connections.pop(node_id, None)
            if stale is not None:
                stale.close()
            raise NoAnswer from None

    def hang_up(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def find_leaders(self) -> None:
        """From any node, as it comes."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        answer = await self.call(self.random.choice(self.cluster.node_ids), request, 9, MetadataResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self.leaders[partition.partition_index] = partition.leader_id
                else:
                    self.leaders.pop(partition.partition_index, None)

    async def leader_of(self, partition: int) -> int | None:
        if partition not in self.leaders:
            await self.find_leaders()
        return self.leaders.get(partition)

    async def pause(self) -> None:
        await self.world.sleep(0.02 + self.random.random() * 0.1)

    async def create_topic(self, partition_count: int = PARTITION_COUNT) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=partition_count, replication_factor=3)
        await self.call(
            self.cluster.node_ids[0], CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7, CreateTopicsResponse
        )


class Producer(Client):
    """Writes to one partition with acks=all, one batch at a time, and again until it is acknowledged."""

    def __init__(self, cluster: ReplicatedCluster, history: History, name: str, *, is_idempotent: bool) -> None:
        super().__init__(cluster, history, f"{'once' if is_idempotent else 'often'}-{name}")
        self._is_idempotent = is_idempotent
        self._producer_id: int | None = None
        self._sequence = 0
        self._asked_epoch = NO_LEADER_EPOCH
        self._count = 0

    async def run(self) -> None:
        partition = self.random.randrange(PARTITION_COUNT)
        while not self.is_over:
            await self._write(partition)
            await self.world.sleep(self.random.random() ** 2 * 0.3)

    async def _write(self, partition: int) -> None:
        values = [f"{self.name}-{self._count + index}".encode() for index in range(self.random.randint(1, 3))]
        self._count += len(values)
        while not self.is_over:
            try:
                answer = await self._attempt(partition, values)
            except NoAnswer:
                self.leaders.pop(partition, None)
            else:
                if answer is not None and self._is_acknowledged(partition, answer, values):
                    return
            await self.pause()

    async def _attempt(self, partition: int, values: Sequence[bytes]) -> PartitionProduceResponse | None:
        leader = await self.leader_of(partition)
        if leader is None or not await self._has_producer_id():
            return None
        data = PartitionProduceData(index=partition, records=self._batch(values))
        request = ProduceRequest(
            acks=-1, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        self._asked_epoch = self.cluster.leader_epoch(leader, TopicName(TOPIC), partition)
        answer = await self.call(leader, request, 11, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def _is_acknowledged(self, partition: int, answer: PartitionProduceResponse, values: Sequence[bytes]) -> bool:
        if answer.error_code == ErrorCode.NONE:
            self.history.acknowledged(partition, answer.base_offset, values, self._asked_epoch)
            self._sequence += len(values)
            return True
        if self.history.has_lost(partition) and answer.error_code in _SEQUENCE_LOST:
            self._producer_id, self._sequence = None, 0
            return False
        if answer.error_code not in RETRIED:
            raise HistoryBroken(f"{self.name} was told {ErrorCode(answer.error_code)!r}: {answer.error_message}")
        self.leaders.pop(partition, None)
        if answer.current_leader.leader_id >= 0:
            self.leaders[partition] = answer.current_leader.leader_id
        return False

    def _batch(self, values: Sequence[bytes]) -> bytes:
        records = [Record(Offset(index), 1_700_000_000_000, None, value) for index, value in enumerate(values)]
        if self._producer_id is None:
            return build_batch(records)
        return build_batch(
            records,
            producer_id=ProducerId(self._producer_id),
            producer_epoch=ProducerEpoch(0),
            base_sequence=self._sequence,
        )

    async def _has_producer_id(self) -> bool:
        if not self._is_idempotent or self._producer_id is not None:
            return True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self.call(self.random.choice(self.cluster.node_ids), request, 4, InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            self._producer_id = answer.producer_id
        return self._producer_id is not None


class Reader(Client):
    """Reads all partitions from the beginning, over and over, from the replica of its rack."""

    partition_count = PARTITION_COUNT
    isolation_level = 0
    max_bytes = 1 << 20

    def __init__(self, cluster: ReplicatedCluster, history: History, name: str, rack_id: str) -> None:
        super().__init__(cluster, history, name)
        self._rack_id = rack_id

    async def run(self) -> None:
        partition = self.random.randrange(self.partition_count)
        while not self.is_over:
            await self.read_on(partition, self.random.randint(5, 40))
            partition = (partition + 1) % self.partition_count

    async def read_on(self, partition: int, fetches: int, end: Offset | None = None) -> None:
        """From the beginning for a while: what is read twice must be the same."""
        position, source = Offset(0), None
        for _ in range(fetches):
            if position == end:
                return
            try:
                source = source or await self.leader_of(partition)
                if source is None:
                    await self.pause()
                    continue
                epoch = self.cluster.leader_epoch(source, TopicName(TOPIC), partition)
                data = await self._fetch(source, partition, position)
            except NoAnswer:
                self.leaders.pop(partition, None)
                source = None
                await self.pause()
                continue
            if data.preferred_read_replica >= 0:
                source = data.preferred_read_replica
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.history.has_lost(partition):
                return
            elif data.error_code != ErrorCode.NONE:
                self._check_error(data, position)
                self.leaders.pop(partition, None)
                source = None
                await self.pause()
            else:
                position = self.take(partition, position, data, epoch)
                await self.rest()

    async def rest(self) -> None:
        """Between two answers; this one does not."""

    def _check_error(self, data: PartitionData, position: Offset) -> None:
        if data.error_code not in RETRIED:
            raise HistoryBroken(f"{self.name} at {position} was told {ErrorCode(data.error_code)!r}")

    async def _fetch(self, node_id: int, partition: int, position: Offset) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.isolation_level,
            session_id=0,
            session_epoch=-1,
            rack_id=self._rack_id,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=self.max_bytes)
                    ],
                )
            ],
        )
        answer = await self.call(node_id, request, 11, FetchResponse)
        return answer.responses[0].partitions[0]

    def take(self, partition: int, position: Offset, data: PartitionData, epoch: LeaderEpoch) -> Offset:
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        for offset, value in values_of(bytes(records)):
            if offset < position:
                continue
            if offset != position:
                raise HistoryBroken(f"{self.name} skipped from {position} to {offset} of partition {partition}")
            if offset >= data.high_watermark:
                raise HistoryBroken(f"{self.name} was shown {offset} beyond the watermark {data.high_watermark}")
            self.history.read(partition, offset, value, self.name, epoch)
            position = Offset(offset + 1)
        return position


def values_of(batches: bytes) -> list[tuple[Offset, bytes]]:
    return [
        (record.offset, bytes(record.value or b""))
        for position, _ in iterate_batches(batches)
        for record in iterate_records(batches, position)
    ]
