"""aiokafka, which speaks old versions of everything, on an event loop of its own in a thread."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.compat.clients.client import DEADLINE_S, Acks, Codec, OffsetReset, Reader, Record, StoredRecord, Writer

Outcome = TypeVar("Outcome")

_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, name="aiokafka", daemon=True).start()


def run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Wait for a coroutine on the clients' loop, which goes on in between: members of a group must send heartbeats."""
    return asyncio.run_coroutine_threadsafe(work, _loop).result(DEADLINE_S)


class AiokafkaWriter:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def write(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        return run(self._write(topic, records, partition))

    async def _write(self, topic: str, records: Sequence[Record], partition: int) -> list[int]:
        sent = [
            await self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        acknowledged = await asyncio.gather(*sent)
        return [-1 if metadata is None else metadata.offset for metadata in acknowledged]

    def close(self) -> None:
        run(self._producer.stop())


class AiokafkaReader:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[StoredRecord]:
        batches = run(self._consumer.getmany(timeout_ms=200))
        return [
            StoredRecord(
                message.topic,
                message.partition,
                message.offset,
                Record(message.key, message.value, message.timestamp, tuple(message.headers)),
            )
            for messages in batches.values()
            for message in messages
        ]

    def assignment(self) -> set[tuple[str, int]]:
        return {(assigned.topic, assigned.partition) for assigned in self._consumer.assignment()}

    def commit(self) -> None:
        run(self._consumer.commit())

    def close(self) -> None:
        run(self._consumer.stop())


class AiokafkaClient:
    name = "aiokafka"
    codecs: Sequence[Codec] = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        run(self._create_topic(topic, partitions, dict(configs or {})))

    def writer(self, *, acks: Acks = "all", codec: Codec = "none", idempotent: bool = False) -> Writer:
        return AiokafkaWriter(run(self._start_producer(acks, codec, idempotent)))

    def reader(self, positions: Mapping[tuple[str, int], int]) -> Reader:
        return AiokafkaReader(run(self._start_reader(positions)))

    def member(
        self, group: str, topics: Sequence[str], *, reset: OffsetReset = "earliest", instance_id: str | None = None
    ) -> Reader:
        started = self._start_consumer(topics, group_id=group, auto_offset_reset=reset, group_instance_id=instance_id)
        return AiokafkaReader(run(started))

    def log_start_offset(self, topic: str, partition: int) -> int:
        return int(run(self._look_up("beginning_offsets", [TopicPartition(topic, partition)])))

    def log_end_offset(self, topic: str, partition: int) -> int:
        return int(run(self._look_up("end_offsets", [TopicPartition(topic, partition)])))

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = run(self._look_up("offsets_for_times", {TopicPartition(topic, partition): timestamp_ms}))
        return None if found is None else int(found.offset)

    async def _create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            response = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
        finally:
            await admin.close()
        for _, error_code, message in response.topic_errors:
            assert error_code == 0, f"creating {topic}: error {error_code}, {message}"

    async def _start_producer(self, acks: Acks, codec: Codec, idempotent: bool) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=acks,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=2_000_000,
        )
        await producer.start()
        return producer

    async def _start_reader(self, positions: Mapping[tuple[str, int], int]) -> Any:
        consumer = await self._start_consumer([])
        consumer.assign([TopicPartition(topic, partition) for topic, partition in positions])
        for (topic, partition), offset in positions.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        return consumer

    async def _start_consumer(self, topics: Sequence[str], **settings: str | None) -> Any:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
            max_partition_fetch_bytes=2_000_000,
            **settings,
        )
        await consumer.start()
        return consumer

    async def _look_up(self, method: str, asked: Any) -> Any:
        """Call one of the consumer's methods that answer per partition, for one partition."""
        consumer = await self._start_consumer([])
        try:
            answers = await getattr(consumer, method)(asked)
        finally:
            await consumer.stop()
        [answer] = answers.values()
        return answer
