"""Runs the backup commands as users do, and reads a backup back to compare it with its source."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation, StoredObject
from quorate.backup.segments.reader import SegmentReader
from quorate.records.record import iterate_records

QUORATE = Path(sys.executable).parent / "quorate"
BACKUP_ID = "nightly"
# Small enough that a test's topics become several tasks.
SMALL_RANGES = {"range_bytes": 1024 * 1024}

RecordValue = tuple[int | None, bytes | None, bytes | None]  # Offset, key, value.


class Backups:
    """The backups of one test: a storage folder, a config file and the commands on them."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.folder = folder
        self.url = f"file://{folder}/storage"
        self._bootstrap_servers = bootstrap_servers

    def write_config(
        self, *, topics: Mapping[str, Any] | None = None, name: str = "backup.yaml", **sections: Any
    ) -> Path:
        """Sections are ``backup`` and ``spark``; what is not given has its default."""
        source = {"bootstrap_servers": self._bootstrap_servers.split(","), "topics": topics or {"include": ["*"]}}
        config = {"backup_id": BACKUP_ID, "source": source, "storage": {"url": self.url}} | sections
        path = self.folder / name
        path.write_text(yaml.safe_dump(config))
        return path

    def backup(self, *options: str, topics: Mapping[str, Any] | None = None, **sections: Any) -> "Finished":
        config = self.write_config(topics=topics, **sections)
        return run_quorate("backup", "--config", str(config), *options)

    def start_backup(self, *options: str, **sections: Any) -> "subprocess.Popen[str]":
        """The command while it runs, in a process group of its own."""
        config = self.write_config(**sections)
        return subprocess.Popen(
            [str(QUORATE), "backup", "--config", str(config), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def verify(self, *options: str) -> "Finished":
        return run_quorate("verify", "--storage", self.url, "--backup-id", BACKUP_ID, *options)

    def list_backups(self, *options: str) -> "Finished":
        return run_quorate("list-backups", "--storage", self.url, *options)

    def manifest(self) -> Manifest:
        manifest = self.catalog().latest()
        assert manifest is not None, "there is no manifest"
        return manifest

    def catalog(self) -> ManifestCatalog:
        return ManifestCatalog(open_storage(self.location), BACKUP_ID)

    def records(self, topic: str, partition: int) -> list[RecordValue]:
        """What the backup holds of a partition, control batches apart."""
        return [
            (record.offset, _bytes(record.key), _bytes(record.value))
            for data, is_control in self._batches(topic, partition)
            if not is_control
            for record in iterate_records(data)
        ]

    def raw(self, topic: str, partition: int) -> bytes:
        """Its batches back to back, as the brokers keep them."""
        return b"".join(bytes(data) for data, _ in self._batches(topic, partition))

    def object_paths(self) -> list[Path]:
        return sorted((self.folder / "storage" / BACKUP_ID / "topics").rglob("*.qseg"))

    def _batches(self, topic: str, partition: int) -> list[tuple[memoryview, bool]]:
        storage = open_storage(self.location)
        entry = self.manifest().latest(topic)
        assert entry is not None, f"topic {topic} is not in the backup"
        found: list[tuple[memoryview, bool]] = []
        for segment in entry.partitions[partition].segments:
            reader = SegmentReader(StoredObject(storage, segment.name, segment.size_bytes))
            for batch in reader.batches(check_crcs=True):
                if batch.summary.base_offset < segment.live_end_offset:
                    data = memoryview(bytes(batch.data))
                    found.append((data, bool(data[22] & 0x20)))
        return found

    @property
    def location(self) -> StorageLocation:
        return StorageLocation(self.url).below(BACKUP_ID)


class Finished:
    """A command that has ended."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status = status
        self.output = output
        self.errors = errors

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    def __repr__(self) -> str:
        return f"status {self.status}\n{self.output}\n{self.errors}"


def run_quorate(*arguments: str, timeout_s: int = 240, environment: Mapping[str, str] | None = None) -> Finished:
    done = subprocess.run(
        [str(QUORATE), *arguments], capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def interrupt(process: "subprocess.Popen[str]", number: int = signal.SIGINT, timeout_s: int = 60) -> Finished:
    """As Ctrl-C does: to the command alone, since it is in a group of its own."""
    process.send_signal(number)
    output, errors = process.communicate(timeout=timeout_s)
    return Finished(process.returncode, output, errors)


def create_topics(bootstrap_servers: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics(list(topics)).values():
        created.result()


def produce(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    partition: int | None = None,
    first: int = 0,
    value_size: int = 200,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Records numbered from ``first``; all are acknowledged when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **(settings or {})})
    refused: list[object] = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error)

    target: dict[str, Any] = {} if partition is None else {"partition": partition}
    for number in range(first, first + count):
        value = f"{number}:".encode().ljust(value_size, b"v")
        while True:
            try:
                producer.produce(topic, key=str(number), value=value, on_delivery=acknowledged, **target)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    assert not refused, refused[0]


def consume(
    bootstrap_servers: str, topic: str, partition: int, settings: Mapping[str, Any] | None = None
) -> list[RecordValue]:
    """Everything that a stock consumer reads of a partition, from its start to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            **(settings or {}),
        }
    )
    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.assign([TopicPartition(topic, partition, start)])
    found: list[RecordValue] = []
    while start < end:
        message = consumer.poll(30)
        assert message is not None, f"{topic}-{partition} gave nothing more before its end {end}"
        if message.error() is not None:
            break  # The end of the partition.
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
