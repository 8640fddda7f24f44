"""A node under random work and power cuts, and what must be true of it afterwards.

What was acknowledged is there: the record at its offset, the topic with its id. What a consumer has seen at an offset
is what it sees there for ever. An idempotent retry gets the offset of the first attempt.
"""

import asyncio
from random import Random
from uuid import UUID

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import SimulatedClock, SimulatedNode, settle

PRODUCE_VERSION = 9
FETCH_VERSION = 11
PARTITIONS = 2

Place = tuple[str, int]


class _Producer:
    """An idempotent producer of one partition, which keeps what it has not had acknowledged and sends it again."""

    def __init__(self, place: Place, producer_id: ProducerId) -> None:
        self.place = place
        self.producer_id = producer_id
        self.next_sequence = 0
        self.unacknowledged: tuple[int, list[bytes]] | None = None


class NodeWorkload:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._disk = SimulatedDisk(self._random)
        self._clock = SimulatedClock()
        self._topics: dict[str, UUID] = {}
        self._acknowledged: dict[Place, dict[int, bytes]] = {}
        self._seen: dict[Place, dict[int, bytes]] = {}
        self._producers: list[_Producer] = []
        self._values = 0
        #: Produce requests under way: who waits for which values.
        self._under_way: list[tuple[asyncio.Future[Reply | None], Place, list[bytes], _Producer | None]] = []

    async def run(self, lives: int) -> None:
        for _ in range(lives):
            self._node = SimulatedNode(self._disk, self._clock, self._random)
            await self._node.start()
            await self._check()
            for _ in range(self._random.randint(5, 40)):
                await self._step()
            if self._random.random() < 0.25:
                await self._node.stop()
                await self._collect()
            self._disk.crash()
            self._abandon()
        self._node = SimulatedNode(self._disk, self._clock, self._random)
        await self._node.start()
        await self._check()

    async def _step(self) -> None:
        choice = self._random.random()
        if choice < 0.08 or not self._topics:
            await self._create_topic()
        elif choice < 0.14:
            await self._start_producer()
        elif choice < 0.35:
            self._produce_plain()
        elif choice < 0.6:
            self._produce_idempotent()
        elif choice < 0.85:
            await self._node.run_some_work()
        else:
            await self._consume(self._random_place())
        await settle()
        await self._collect()

    async def _create_topic(self) -> None:
        name = f"topic-{len(self._topics)}"
        response = await self._node.call(
            CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)]),
            7,
            CreateTopicsResponse,
        )
        (result,) = response.topics
        assert result.error_code == 0, result
        self._topics[name] = result.topic_id

    async def _start_producer(self) -> None:
        response = await self._node.call(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
        assert response.error_code == 0
        assert all(response.producer_id != producer.producer_id for producer in self._producers), "an id given twice"
        self._producers.append(_Producer(self._random_place(), ProducerId(response.producer_id)))

    def _produce_plain(self) -> None:
        self._send(self._random_place(), self._new_values(), None)

    def _produce_idempotent(self) -> None:
        idle = [p for p in self._producers if all(waiting is not p for *_, waiting in self._under_way)]
        if not idle:
            return
        producer = self._random.choice(idle)
        if producer.unacknowledged is None:
            producer.unacknowledged = (producer.next_sequence, self._new_values())
        self._send(producer.place, producer.unacknowledged[1], producer)

    def _send(self, place: Place, values: list[bytes], producer: _Producer | None) -> None:
        records = [Record(Offset(index), self._clock.now_ms(), value[:3], value) for index, value in enumerate(values)]
        if producer is None or producer.unacknowledged is None:
            batch = build_batch(records)
        else:
            batch = build_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=ProducerEpoch(0),
                base_sequence=producer.unacknowledged[0],
            )
        topic, index = place
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
        self._under_way.append((self._node.send(request, PRODUCE_VERSION), place, values, producer))

    async def _collect(self) -> None:
        """Take the acknowledgements that have come."""
        for waiting in [w for w in self._under_way if w[0].done()]:
            self._under_way.remove(waiting)
            reply, place, values, producer = waiting
            response = self._node.decode(reply.result(), ProduceResponse, PRODUCE_VERSION)
            (result,) = response.responses[0].partition_responses
            assert result.error_code == 0, result
            for index, value in enumerate(values):
                known = self._acknowledged.setdefault(place, {})
                assert known.get(result.base_offset + index, value) == value, "one offset, two records"
                known[result.base_offset + index] = value
            if producer is not None and producer.unacknowledged is not None:
                producer.next_sequence += len(values)
                producer.unacknowledged = None

    def _abandon(self) -> None:
        """The power was cut: whatever was not answered never will be."""
        for future, *_ in self._under_way:
            future.cancel()
        self._under_way.clear()

    async def _consume(self, place: Place) -> dict[int, bytes]:
        """Read a partition from its start, as far as the node lets a consumer see."""
        topic, index = place
        found: dict[int, bytes] = {}
        while True:
            wanted = FetchPartition(partition=index, fetch_offset=len(found), partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
            response = await self._node.call(request, FETCH_VERSION, FetchResponse)
            (data,) = response.responses[0].partitions
            assert data.error_code == 0, data
            if not isinstance(data.records, memoryview) or not data.records:
                assert len(found) == data.high_watermark
                break
            for position, _ in iterate_batches(data.records, strict=True):
                for record in iterate_records(data.records, position):
                    assert record.offset == len(found), "offsets without a gap"
                    found[record.offset] = record.value or b""
        seen = self._seen.setdefault(place, {})
        for offset, value in seen.items():
            assert found.get(offset) == value, f"offset {offset} of {place} held {value!r}, now {found.get(offset)!r}"
        seen.update(found)
        return found

    async def _check(self) -> None:
        """After a start: all that was promised holds."""
        if not self._topics:
            return
        topics = [MetadataRequestTopic(name=name) for name in self._topics]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self._node.call(request, 12, MetadataResponse)
        for topic in response.topics:
            assert topic.error_code == 0, topic
            assert topic.topic_id == self._topics[topic.name or ""]
            assert [partition.leader_id for partition in topic.partitions] == [7] * PARTITIONS
        while self._node.has_work:  # What was recovered but not synced before becomes visible.
            await self._node.run_some_work()
        for place in [(topic, index) for topic in self._topics for index in range(PARTITIONS)]:
            found = await self._consume(place)
            for offset, value in self._acknowledged.get(place, {}).items():
                assert found.get(offset) == value, f"acknowledged {value!r} at {offset} of {place} is lost"
            values = [value for value in found.values() if value.startswith(b"once")]
            assert len(values) == len(set(values)), "an idempotent record is there twice"

    def _new_values(self) -> list[bytes]:
        count = self._random.randint(1, 3)
        self._values += count
        return [b"once %06d" % (self._values - index) for index in range(count)]

    def _random_place(self) -> Place:
        return self._random.choice(sorted(self._topics)), self._random.randrange(PARTITIONS)
