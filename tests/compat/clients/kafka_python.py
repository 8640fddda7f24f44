"""kafka-python: acks=all and idempotent unless told otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.codec import has_lz4, has_snappy, has_zstd

from tests.compat.clients.client import DEADLINE_S, Acks, Codec, OffsetReset, Reader, Record, StoredRecord, Writer

# The codecs other than gzip come from packages of their own; what is not installed cannot be sent.
_OPTIONAL_CODECS: dict[Codec, bool] = {"snappy": has_snappy(), "lz4": has_lz4(), "zstd": has_zstd()}

# A poll that times out between joining a group and learning its partitions leaves this client without them for good,
# with Apache Kafka too, so its polls are long.
POLL_TIMEOUT_MS = 1500
# Its default is half a minute, which a test that restarts a node would have to wait.
RECONNECT_BACKOFF_MAX_MS = 500


class KafkaPythonWriter:
    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def write(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        sent = [
            self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        self._producer.flush(timeout=DEADLINE_S)
        return [future.get(timeout=DEADLINE_S).offset for future in sent]

    def close(self) -> None:
        self._producer.close(timeout=DEADLINE_S)


class KafkaPythonReader:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[StoredRecord]:
        batches = self._consumer.poll(timeout_ms=POLL_TIMEOUT_MS)
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
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPythonClient:
    name = "kafka-python"
    codecs: Sequence[Codec] = ("none", "gzip", *(codec for codec, installed in _OPTIONAL_CODECS.items() if installed))
    writes_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.create_topics(
                [NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs or {}))]
            )
        finally:
            admin.close()

    def writer(self, *, acks: Acks = "all", codec: Codec = "none", idempotent: bool = False) -> Writer:
        return KafkaPythonWriter(
            KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=5,
                reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
                max_request_size=2_000_000,
            )
        )

    def reader(self, positions: Mapping[tuple[str, int], int]) -> Reader:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition) for topic, partition in positions])
        for (topic, partition), offset in positions.items():
            consumer.seek(TopicPartition(topic, partition), offset)
        return KafkaPythonReader(consumer)

    def member(
        self, group: str, topics: Sequence[str], *, reset: OffsetReset = "earliest", instance_id: str | None = None
    ) -> Reader:
        consumer = self._consumer(group_id=group, auto_offset_reset=reset, group_instance_id=instance_id)
        consumer.subscribe(list(topics))
        return KafkaPythonReader(consumer)

    def log_start_offset(self, topic: str, partition: int) -> int:
        asked = TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            return int(consumer.beginning_offsets([asked])[asked])
        finally:
            consumer.close()

    def log_end_offset(self, topic: str, partition: int) -> int:
        asked = TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            return int(consumer.end_offsets([asked])[asked])
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        asked = TopicPartition(topic, partition)
        consumer = self._consumer()
        try:
            found = consumer.offsets_for_times({asked: timestamp_ms})[asked]
        finally:
            consumer.close()
        return None if found is None else int(found.offset)

    def _consumer(self, **settings: str | None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
            max_partition_fetch_bytes=2_000_000,
            **settings,
        )
