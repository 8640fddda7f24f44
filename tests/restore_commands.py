"""Runs restores as users do, and reads everything of a topic's records to compare them with those of the source."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.restore.config import parse_restore_config
from quorate.backup.restore.ledger import RestoreLedger, restores_location
from quorate.backup.spark.restore.restore_run import RestoreReport, RestoreRun
from quorate.backup.spark.restore.target import target_client_config
from quorate.backup.spark.session.job import SparkDriver
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from quorate.records.record import Record, iterate_records
from tests.backup_commands import BACKUP_ID, QUORATE, Backups, Finished, run_quorate
from tests.spark_session import InThisProcess, QuietWatcher


class QuietRestoreWatcher(QuietWatcher):
    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        """Nobody looks."""


class Restores:
    """Restores of one test's backup into a cluster."""

    def __init__(
        self,
        backups: Backups,
        target_servers: str,
        storage: Mapping[str, str] | None = None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """``storage`` is where the backup lies, unless in the test's own folder."""
        self._security = {"security": dict(security)} if security else {}
        self._backups = backups
        self._target_servers = target_servers
        self._storage = dict(storage or {"url": backups.url})

    def write_config(self, *, name: str = "restore.yaml", **restore: Any) -> Path:
        config: dict[str, Any] = {
            "backup_id": BACKUP_ID,
            "target": {"bootstrap_servers": self._target_servers.split(","), **self._security},
            "storage": self._storage,
            "restore": restore,
            "spark": {"master": "local[2]"},
        }
        path = self._backups.folder / name
        path.write_text(yaml.safe_dump(config))
        return path

    def restore(self, *options: str, **restore: Any) -> Finished:
        return run_quorate("restore", "--config", str(self.write_config(**restore)), *options)

    def start(self, *options: str, **restore: Any) -> "subprocess.Popen[str]":
        """The command while it runs, in a process group of its own."""
        return subprocess.Popen(
            [str(QUORATE), "restore", "--config", str(self.write_config(**restore)), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_in_process(self, spark: Callable[[], SparkDriver] = InThisProcess, **restore: Any) -> RestoreReport:
        """Without a process of its own, and without Spark unless a session is given."""
        path = self.write_config(**restore)
        config = parse_restore_config(path.read_text(), {}, path.name)
        catalog = ManifestCatalog(open_storage(config.location), BACKUP_ID)
        ledger = RestoreLedger(open_storage(restores_location(config)))
        run = RestoreRun(config, target_client_config(config), catalog, ledger, spark)
        return run.run(QuietRestoreWatcher())


def client_of(bootstrap_servers: str) -> KafkaClient:
    return KafkaClient(ClientConfig(bootstrap_servers=tuple(bootstrap_servers.split(","))))


def all_records(client: KafkaClient, topic: str, partition: int) -> list[Record]:
    """What a read-committed consumer sees, with everything that a record has."""
    name = TopicPartition(TopicName(topic), PartitionIndex(partition))
    start = client.offsets.earliest([name])[name].offset
    end = client.offsets.latest([name])[name].offset
    assert start is not None
    assert end is not None
    found: list[Record] = []
    for piece in client.fetch_range(topic, partition, start, end, isolation=IsolationLevel.READ_COMMITTED):
        for batch in piece.walk():
            header = batch.header
            assert header is not None
            if header.is_control or (header.is_transactional and _is_aborted(header, piece.aborted_transactions)):
                continue
            found += list(iterate_records(bytes(piece.data[batch.position : batch.position + batch.size_bytes])))
    return [each for each in found if each.offset >= start]


def _is_aborted(header: Any, transactions: Any) -> bool:
    return any(
        header.producer_id == each.producer_id and header.base_offset >= each.first_offset for each in transactions
    )


Everything = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def without_offsets(records: list[Record]) -> list[Everything]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


def topic_configs(client: KafkaClient, topic: str) -> Mapping[str, str | None]:
    entries = client.configs.describe_topics([topic])[TopicName(topic)]
    return {key: entry.value for key, entry in entries.items() if entry.is_set_on_topic}
