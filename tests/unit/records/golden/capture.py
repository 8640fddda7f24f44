"""Makes the golden files: sends the golden records to Apache Kafka with each client, then copies its log files.

    python -m tests.unit.records.golden.capture <bootstrap server> <the broker's log directory> <its jars>

Use one fresh broker with ``log.cleaner.backoff.ms=500``: the topics must not exist yet. The files are committed, so
this runs only when a new client or format is to be covered. Beyond the development dependencies, kafka-python asks for
lz4, python-snappy and zstandard.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.eventually import eventually
from tests.unit.records.golden.content import GOLDEN_RECORDS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LINGER_MS = 300  # Long enough for all the records to go out as one batch.


def send_with_confluent_kafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": LINGER_MS}
    )
    for record in GOLDEN_RECORDS:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
            partition=0,
        )
    producer.flush()


def send_with_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=LINGER_MS
    )
    for record in GOLDEN_RECORDS:
        producer.send(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp_ms=record.timestamp,
            partition=0,
        )
    producer.flush()
    producer.close()


def send_with_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def send_all() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=LINGER_MS
        )
        await producer.start()
        for record in GOLDEN_RECORDS:
            await producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp_ms=record.timestamp,
                partition=0,
            )
        await producer.flush()
        await producer.stop()

    asyncio.run(send_all())


def send_in_transactions(bootstrap: str, topic: str) -> None:
    """One committed transaction and one aborted, each followed by its marker."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden"})
    producer.init_transactions()
    record = GOLDEN_RECORDS[0]
    for value in (b"committed", b"aborted"):
        producer.begin_transaction()
        producer.produce(topic, key=record.key, value=value, timestamp=record.timestamp, partition=0)
        producer.flush()
        if value == b"committed":
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def send_until_compacted(bootstrap: str, topic: str, segment: Path) -> None:
    """Let the cleaner take records out of a batch of four, which leaves a sparse batch with a delete horizon."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": LINGER_MS, "compression.type": "lz4"}
    )
    for key, value in ((b"a", b"old"), (b"b", b"kept" * 20), (b"c", None), (b"a", b"older" * 20)):
        producer.produce(topic, key=key, value=value, timestamp=GOLDEN_RECORDS[0].timestamp, partition=0)
    producer.flush()
    original_size = segment.stat().st_size

    def cleaned_after_another_record() -> bool:
        # Each record is in a new segment, since the last one is too old by then: the first becomes cleanable.
        producer.produce(topic, key=b"a", value=b"new", partition=0)
        producer.flush()
        return segment.stat().st_size < original_size

    eventually(cleaned_after_another_record, "the cleaner to take records out", within_s=300)


def send_with_java(bootstrap: str, jars: Path) -> None:
    source = Path(__file__).parent / "CaptureProducer.java"
    subprocess.run(["java", "-cp", f"{jars}/*", str(source), bootstrap], check=True)


SENDERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": send_with_confluent_kafka,
    "kafka-python": send_with_kafka_python,
    "aiokafka": send_with_aiokafka,
}


COMPACTED = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}


def main(bootstrap: str, log_directory: Path, jars: Path) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for codec in CODECS:
        create_topic(admin, f"java-{codec}")
    send_with_java(bootstrap, jars)
    for codec in CODECS:
        keep(log_directory, f"java-{codec}")
    for client, send in SENDERS.items():
        for codec in CODECS:
            name = f"{client}-{codec}"
            create_topic(admin, name)
            send(bootstrap, name, codec)
            keep(log_directory, name)
    create_topic(admin, "log-append-time", {"message.timestamp.type": "LogAppendTime"})
    send_with_confluent_kafka(bootstrap, "log-append-time", "zstd")
    keep(log_directory, "log-append-time")
    create_topic(admin, "transactions")
    send_in_transactions(bootstrap, "transactions")
    create_topic(admin, "compacted", COMPACTED)
    send_until_compacted(bootstrap, "compacted", first_segment_of(log_directory, "compacted"))
    keep(log_directory, "compacted")
    keep(log_directory, "transactions")  # Last, since markers are written after the client has its answer.


def create_topic(admin: AdminClient, name: str, config: dict[str, str] | None = None) -> None:
    """Without a time limit, since the golden records are old enough to go at once."""
    topic = NewTopic(name, 1, 1, config={"retention.ms": "-1"} | (config or {}))
    for created in admin.create_topics([topic]).values():
        created.result()


def keep(log_directory: Path, topic: str) -> None:
    """Keep all the segments as one file: the broker rolls when a batch is much younger than the one before."""
    segments = sorted((log_directory / f"{topic}-0").glob("*.log"))
    golden_file = Path(__file__).parent / f"{topic}.log"
    golden_file.write_bytes(b"".join(segment.read_bytes() for segment in segments))


def first_segment_of(log_directory: Path, topic: str) -> Path:
    return log_directory / f"{topic}-0" / "00000000000000000000.log"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
