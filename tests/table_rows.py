"""Records as rows with every column, as the data source gives them without Spark and as a stock consumer reads them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition

from quorate.backup.spark.data_source.backup_reading import BackupTask, plan_backup, read_backup
from quorate.backup.spark.data_source.live_planning import plan_live
from quorate.backup.spark.data_source.live_reading import LiveTask, read_live
from quorate.backup.spark.data_source.options import parse_options
from quorate.client.config import ClientConfig
from quorate.records.batch import TimestampType

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS: list[tuple[str, str | bytes | None]] = [
    ("trace", b"1"),
    ("trace", b"2"),
    ("empty", b""),
    ("null", None),
    ("ünïcode", b"\xff"),
]
RECORDS_PER_CODEC = 40
NOON_MS = 1_750_000_000_000


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def write_everything(bootstrap: str, topic: str, partition: int = 0) -> None:
    """Every codec; keys, values and headers that are null, empty and doubled; times out of order."""
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(RECORDS_PER_CODEC):
            value = None if number % 9 == 0 else f"{codec}-{number}".encode() * (number % 5)
            key = None if number % 7 == 0 else b"" if number % 7 == 1 else f"key-{number}".encode()
            headers = HEADERS if number % 3 == 0 else None
            time_ms = NOON_MS + (number * 7919) % 1000
            producer.produce(topic, value, key, partition, timestamp=time_ms, headers=headers)
        assert producer.flush(60) == 0


def plan(options: Mapping[str, str]) -> Sequence[LiveTask | BackupTask]:
    parsed = parse_options(options)
    if isinstance(parsed.source, ClientConfig):
        return plan_live(parsed.source, parsed)
    return plan_backup(parsed.source, parsed)


def read(task: LiveTask | BackupTask) -> Iterator[Any]:
    return read_live(task) if isinstance(task, LiveTask) else read_backup(task)


def read_rows(options: Mapping[str, str]) -> list[Row]:
    """Task by task, as Spark's workers would; in the order of offsets."""
    return in_order(row for task in plan(options) for batch in read(task) for row in rows_of(batch))


def rows_of(batch: Any) -> Iterator[Row]:
    batch.validate(full=True)
    times = batch.column("timestamp").cast("int64").to_pylist()
    for row, microseconds in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
        headers = [(each["key"], each["value"]) for each in row.pop("headers")]
        yield Row(timestamp_ms=None if microseconds is None else microseconds // 1000, headers=headers, **row)


def spark_rows(frame: Any) -> list[Row]:
    """The rows of a DataFrame, read back by Spark."""
    from pyspark.sql.functions import unix_millis

    return in_order(
        Row(
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            timestamp_ms=row.timestamp_ms,
            timestamp_type=row.timestamp_type,
            key=None if row.key is None else bytes(row.key),
            value=None if row.value is None else bytes(row.value),
            headers=[(each.key, None if each.value is None else bytes(each.value)) for each in row.headers],
        )
        for row in frame.withColumn("timestamp_ms", unix_millis("timestamp")).collect()
    )


def consumed_rows(
    bootstrap: str, topic: str, partitions: Iterable[int] = (0,), *, isolation: str = "read_committed"
) -> list[Row]:
    """Everything that a stock consumer reads, from the start of each partition to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    found: list[Row] = []
    for partition in partitions:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while (message := consumer.poll(60)) is not None and message.error() is None:
            found.append(_row_of(message))
        assert message is not None, f"{topic}-{partition} gave nothing more and no end"
    consumer.close()
    return in_order(found)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def _row_of(message: Any) -> Row:
    kind, timestamp_ms = message.timestamp()
    is_append_time = kind == TIMESTAMP_LOG_APPEND_TIME
    return Row(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )
