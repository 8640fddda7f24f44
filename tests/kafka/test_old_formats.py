"""Message formats 0 and 1 in the log of a real broker. Apache Kafka 4 accepts none from producers, but serves those
that older versions have left on its disk, so the test puts such a file there while the broker is down."""

from pathlib import Path

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.records.batch import Compression, iterate_batches
from quorate.records.legacy import iterate_legacy_records
from quorate.records.record import iterate_records
from tests.backup_commands import Backups, RecordValue, consume, produce
from tests.eventually import eventually
from tests.kafka.secured_kafka import SecuredKafka
from tests.spark_session import InThisProcess, run_in_process
from tests.unit.records.test_legacy import message, wrapper

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

NODE = NodeId(7)
# Format 0 has no times and counts offsets absolutely inside a wrapper; format 1 counts them from the first.
OLD_LOG = b"".join(
    [
        message(0, b"a", key=b"k", magic=0),
        message(1, None, key=b"k", magic=0),
        wrapper(3, message(2, b"b", magic=0) + message(3, b"c", magic=0), Compression.GZIP, magic=0),
        message(4, b"d", key=b"k", magic=1),
        wrapper(6, message(0, b"e") + message(1, b"f"), Compression.GZIP),
        wrapper(8, message(0, b"g") + message(1, b"h"), Compression.LZ4),
        wrapper(10, message(0, b"i") + message(1, b"j"), Compression.SNAPPY),
    ]
)
OLD_RECORDS = 11
NEW_RECORDS = 20


def test_batches_of_old_formats_are_copied_as_they_are(
    kafka: SecuredKafka, client: KafkaClient, tmp_path: Path, name: str
) -> None:
    client.topics.create([NewTopic(name=TopicName(name), assignments={PartitionIndex(0): [NODE]})])
    partition = TopicPartition(TopicName(name), PartitionIndex(0))
    eventually(lambda: _end(client, partition) == 0, "the partition to be led")
    log = _replace_log(kafka, name, OLD_LOG)
    eventually(lambda: _end(client, partition) == OLD_RECORDS, "the broker to recover the old log", within_s=60)
    produce(kafka.bootstrap, name, NEW_RECORDS)
    backups = Backups(tmp_path, kafka.bootstrap)

    report = run_in_process(backups, backups.write_config(topics={"include": [name]}), InThisProcess)

    assert report is not None
    assert (report.state, report.record_count) == ("complete", OLD_RECORDS + NEW_RECORDS)
    copied = backups.raw(name, 0)
    assert copied == log.read_bytes()
    assert copied.startswith(OLD_LOG)
    assert _records(copied) == consume(kafka.bootstrap, name, 0)
    for options in ([], ["--deep"]):
        assert backups.verify(*options).status == 0


def _replace_log(kafka: SecuredKafka, topic: str, content: bytes) -> Path:
    """Kill the broker, so that it recovers its logs by reading them when it is started again."""
    node = kafka.nodes[NODE]
    node.kill()
    folder = node.data_dir / f"{topic}-0"
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            path.unlink()
    (log,) = folder.glob("*.log")
    log.write_bytes(content)
    node.restart()
    return log


def _end(client: KafkaClient, partition: TopicPartition) -> int | None:
    found = client.offsets.try_latest([partition])[partition]
    return None if isinstance(found, QuorateError) else found.offset


def _records(log: bytes) -> list[RecordValue]:
    old, new = log[: len(OLD_LOG)], log[len(OLD_LOG) :]
    records = [
        *iterate_legacy_records(old),
        *(record for position, _ in iterate_batches(new) for record in iterate_records(new, position)),
    ]
    return [(each.offset, each.key, each.value) for each in records]
