"""confluent-kafka, which is librdkafka."""

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compat.clients.client import (
    DEADLINE_S,
    Acks,
    Codec,
    Headers,
    OffsetReset,
    Reader,
    Record,
    StoredRecord,
    Writer,
)
from tests.eventually import eventually

NO_SUCH_OFFSET = -1


class ConfluentWriter:
    def __init__(self, settings: Mapping[str, str | int | bool]) -> None:
        self._producer = Producer(dict(settings))

    def write(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        outcomes: list[tuple[KafkaError | None, Message]] = []
        for record in records:
            self._producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=lambda error, message: outcomes.append((error, message)),
            )
        unsent = self._producer.flush(DEADLINE_S)
        assert unsent == 0, f"{unsent} records were neither acknowledged nor refused within {DEADLINE_S} s"
        for error, _ in outcomes:
            if error is not None:
                raise KafkaException(error)
        return [message.offset() or 0 for _, message in outcomes]

    def close(self) -> None:
        self._producer.flush(DEADLINE_S)


class ConfluentReader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[StoredRecord]:
        stored = []
        for message in self._consumer.consume(num_messages=500, timeout=0.2):
            error = message.error()
            if error is None:
                stored.append(_stored_record(message))
            elif not error.retriable() and error.code() not in _TRANSIENT:
                raise KafkaException(error)
        return stored

    def assignment(self) -> set[tuple[str, int]]:
        return {(assigned.topic, assigned.partition) for assigned in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


# What librdkafka reports while it keeps trying on its own.
_TRANSIENT = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


class ConfluentClient:
    name = "confluent-kafka"
    codecs: Sequence[Codec] = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        new_topic = NewTopic(topic, num_partitions=partitions, config=dict(configs or {}))
        admin.create_topics([new_topic])[topic].result(DEADLINE_S)

    def writer(self, *, acks: Acks = "all", codec: Codec = "none", idempotent: bool = False) -> Writer:
        return ConfluentWriter(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": str(acks),
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.max.bytes": 2_000_000,
            }
        )

    def reader(self, positions: Mapping[tuple[str, int], int]) -> Reader:
        consumer = self._consumer("unused")
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()])
        return ConfluentReader(consumer)

    def member(
        self, group: str, topics: Sequence[str], *, reset: OffsetReset = "earliest", instance_id: str | None = None
    ) -> Reader:
        static = {"group.instance.id": instance_id} if instance_id else {}
        consumer = self._consumer(group, **{"auto.offset.reset": reset}, **static)
        consumer.subscribe(list(topics))
        return ConfluentReader(consumer)

    def log_start_offset(self, topic: str, partition: int) -> int:
        return self._watermarks(topic, partition)[0]

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self._watermarks(topic, partition)[1]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer("unused")
        try:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], timeout=DEADLINE_S)
        finally:
            consumer.close()
        assert found.error is None, found.error
        return None if found.offset == NO_SUCH_OFFSET else found.offset

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        asked = TopicPartition(topic, partition)
        consumer = self._consumer("unused")

        def answer() -> tuple[int, int] | None:
            try:
                return consumer.get_watermark_offsets(asked, timeout=DEADLINE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                return None

        try:
            return eventually(answer, f"the ends of {topic}-{partition}")
        finally:
            consumer.close()

    def _consumer(self, group: str, **settings: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                "fetch.message.max.bytes": 2_000_000,
                **settings,
            }
        )


def _stored_record(message: Message) -> StoredRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    record = Record(_bytes(message.key()), _bytes(message.value()), message.timestamp()[1], _headers(message))
    return StoredRecord(topic, partition, offset, record)


def _headers(message: Message) -> Headers:
    headers = message.headers() or []
    assert isinstance(headers, list)
    return tuple((header[0], _bytes(header[1])) for header in headers)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
