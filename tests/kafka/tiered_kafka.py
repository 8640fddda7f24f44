"""Apache Kafka whose closed segments move to a remote storage (KIP-405): one broker, and a folder as the storage."""

from pathlib import Path
from typing import Final, Self

from tests.peers.apache_kafka import ApacheKafka, ApacheKafkaNode
from tests.peers.jars import tiered_storage_jars

NODE_ID: Final = 4001
STORAGE_CLASS: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
#: The smallest that Apache Kafka allows.
SEGMENT_BYTES: Final = 1024 * 1024
#: Local copies go as soon as there is a remote one; the segment that is written to stays.
TIERED_TOPIC: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
    "local.retention.ms": "-1",
    "local.retention.bytes": "1",
}


class TieredKafka(ApacheKafka):
    """Start it with ``launch``."""

    @classmethod
    def launch(cls) -> Self:
        return cls.start(
            node_ids=[NODE_ID],
            overrides={
                "remote.log.storage.system.enable": "true",
                "remote.log.storage.manager.class.name": STORAGE_CLASS,
                "remote.log.metadata.manager.listener.name": "PLAINTEXT",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
                "rsm.config.delete.on.close": "false",
                "remote.log.manager.task.interval.ms": "200",
                "log.retention.check.interval.ms": "200",
                "log.initial.task.delay.ms": "200",
            },
            heap_mb=384,
            more_jars=tiered_storage_jars(),
        )

    def restart(self) -> None:
        node = self.nodes[NODE_ID]
        node.stop()
        node.restart()

    def remote_segments(self, topic: str, partition: int) -> list[Path]:
        """The files, in the order of their offsets."""
        folder = _remote_folder(self.nodes[NODE_ID])
        return sorted(folder.glob(f"kafka-tiered-storage/{topic}-{partition}-*/*.log"))

    def _settings(self, node: ApacheKafkaNode) -> dict[str, str]:
        return super()._settings(node) | {"rsm.config.dir": str(_remote_folder(node))}


def _remote_folder(node: ApacheKafkaNode) -> Path:
    return node.data_dir.with_name("remote")
