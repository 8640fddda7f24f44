"""What the contenders read, made once before anything is timed: the same records in the form that each of them needs.

The records are produced to one node of Quorate. From there they go into backups, into files with one record after the
other, and into Parquet; its log files stay, with the batches that the limit sends.
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Contender, ContenderFailed
from benchmarks.contenders.jobs import Job
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.topics import Topics
from benchmarks.restore.cases import Case, RestoreSettings
from tests.peers.quorate_node import QuorateNode

# As in the backup's benchmark: a JVM that has written less than this still compiles itself.
_WARM_UP_SHARE = 5
_MAKERS = {
    ContenderName.QUORATE: "benchmarks.backup.quorate_backup",
    ContenderName.PRODUCER_LOOP: "benchmarks.backup.consumer_loop",
    ContenderName.CONNECTOR: "benchmarks.backup.spark_connector",
}


class Materials:
    def __init__(self, folder: Path, settings: RestoreSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._data_dir = folder / "source" / "data"

    def topics(self, case: Case) -> dict[str, int]:
        """The case's topic and a small one like it, with their records."""
        return {case.topic: self._settings.records, f"small-{case.topic}": self._settings.records // _WARM_UP_SHARE}

    def folder_for(self, topic: str, contender: ContenderName) -> Path:
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
        return self._folder / f"{kind}-{topic}"

    def end_offsets(self, topic: str) -> tuple[int, ...]:
        each, rest = divmod(dict(self._all_topics)[topic], self._settings.partitions)
        return tuple(each + (index < rest) for index in range(self._settings.partitions))

    def log_files(self, topic: str) -> dict[int, list[Path]]:
        """Of each partition, in order."""
        return {
            index: sorted((self._data_dir / f"{topic}-{index}").glob("*.log"))
            for index in range(self._settings.partitions)
        }

    def log_bytes(self, topic: str) -> int:
        return sum(path.stat().st_size for paths in self.log_files(topic).values() for path in paths)

    def make(self, cases: list[Case], connector: Connector | None, say: Callable[[str], None]) -> None:
        self._all_topics = {topic: records for case in cases for topic, records in self.topics(case).items()}
        node = QuorateNode.start(self._folder / "source", settings={"durability": "os"})
        try:
            topics = Topics(node.bootstrap)
            for case in {case.topic: case for case in cases}.values():
                for topic, records in self.topics(case).items():
                    say(f"making {records:,} records for {topic}")
                    topics.create([topic], self._settings.partitions)
                    topics.fill(
                        topic, records, partitions=self._settings.partitions, compression=case.producer_compression
                    )
            self._make_from(node.bootstrap, cases, ContenderName.QUORATE)
            self._make_from(node.bootstrap, cases, ContenderName.PRODUCER_LOOP, "1")
            if connector is not None:
                self._make_from(node.bootstrap, cases, ContenderName.CONNECTOR, ",".join(map(str, connector.jars)))
        finally:
            node.process.stop()

    def _make_from(self, bootstrap: str, cases: list[Case], kind: ContenderName, *arguments: str) -> None:
        readers = [name for name in ContenderName if name is kind or (name.is_judged and kind.is_ours)]
        wanted = {
            (topic, reader)
            for case in cases
            for topic in self.topics(case)
            for reader in readers
            if case.includes(reader)
        }
        with Contender(kind, _MAKERS[kind], arguments, self._folder, ()) as maker:
            for topic, reader in sorted(wanted):
                folder = self.folder_for(topic, reader)
                folder.mkdir()
                job = Job(
                    bootstrap=bootstrap,
                    topics=(topic,),
                    folder=str(folder),
                    end_offsets=self.end_offsets(topic),
                    backup_compression=reader.backup_compression,
                )
                found = maker.run(job).records
                if found != self._all_topics[topic]:
                    raise ContenderFailed(f"{found} of {self._all_topics[topic]} records of {topic} for {reader}")
