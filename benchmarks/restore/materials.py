"""What the contenders read, made once before anything is timed: the same records in the form that each of them needs.

The records are produced to one node of Quorate. From there they go into backups, into files with one record after the
other, and into Parquet; its log files stay, with the batches that the limit sends.
"""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Contender, ContenderFailed
from benchmarks.contenders.jobs import Job
from benchmarks.contenders.kafka_backup import KafkaBackup
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import Shape
from benchmarks.contenders.topics import Topics, check_batches
from benchmarks.restore.cases import Case
from tests.peers.quorate_node import QuorateNode

_MAKERS = {
    ContenderName.QUORATE: "benchmarks.backup.quorate_backup",
    ContenderName.PRODUCER_LOOP: "benchmarks.backup.consumer_loop",
    ContenderName.CONNECTOR: "benchmarks.backup.spark_connector",
    ContenderName.KAFKA_BACKUP: "benchmarks.backup.kafka_backup",
}


class Materials:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data_dir = folder / "source" / "data"

    def folder_for(self, shape: Shape, contender: ContenderName) -> Path:
        """What the contender reads."""
        match contender:
            case ContenderName.QUORATE | ContenderName.QUORATE_COMMAND:
                kind = "backup"
            case ContenderName.QUORATE_ZSTD:
                kind = "backup-zstd"
            case ContenderName.PRODUCER_LOOP | ContenderName.PRODUCER_LOOPS:
                kind = "files"
            case _:
                kind = contender.replace(" ", "-")
        return self._folder / f"{kind}-{shape.name}"

    def log_files(self, shape: Shape) -> dict[tuple[str, int], list[Path]]:
        """Of each partition, in order."""
        return {
            (topic, index): sorted((self._data_dir / f"{topic}-{index}").glob("*.log"))
            for topic in shape.topics
            for index in range(shape.partitions)
        }

    def log_bytes(self, shape: Shape) -> int:
        return sum(path.stat().st_size for paths in self.log_files(shape).values() for path in paths)

    def make(
        self,
        cases: list[Case],
        connector: Connector | None,
        kafka_backup: KafkaBackup | None,
        say: Callable[[str], None],
    ) -> None:
        node = QuorateNode.start(self._folder / "source", settings={"durability": "os"})
        try:
            topics = Topics(node.bootstrap)
            for shape in {case.shape.name: case.shape for case in cases}.values():
                for each in (shape, shape.small()):
                    topics.make(each)
                    mean = check_batches(each, chain.from_iterable(self.log_files(each).values()))
                    say(f"{each.records:,} records for {each.name}, {mean:.1f} a batch")
            self._make_from(node.bootstrap, cases, ContenderName.QUORATE)
            self._make_from(node.bootstrap, cases, ContenderName.PRODUCER_LOOP, "1")
            if connector is not None:
                self._make_from(node.bootstrap, cases, ContenderName.CONNECTOR, ",".join(map(str, connector.jars)))
            if kafka_backup is not None:
                self._make_from(node.bootstrap, cases, ContenderName.KAFKA_BACKUP, str(kafka_backup.binary))
        finally:
            node.process.stop()

    def _make_from(self, bootstrap: str, cases: list[Case], kind: ContenderName, *arguments: str) -> None:
        readers = [name for name in ContenderName if name is kind or (name.is_judged and kind.is_ours)]
        wanted = {
            (shape.name, reader): shape
            for case in cases
            for shape in (case.shape, case.shape.small())
            for reader in readers
            if case.includes(reader)
        }
        with Contender(kind, _MAKERS[kind], arguments, self._folder, ()) as maker:
            for (_, reader), shape in wanted.items():
                folder = self.folder_for(shape, reader)
                folder.mkdir()
                job = Job(
                    bootstrap=bootstrap,
                    topics=shape.topics,
                    folder=str(folder),
                    end_offsets=shape.end_offsets,
                    records=shape.records,
                    backup_compression=reader.backup_compression,
                )
                found = maker.run(job).records
                if found != shape.records:
                    raise ContenderFailed(f"{found} of {shape.records} records of {shape.name} for {reader}")
