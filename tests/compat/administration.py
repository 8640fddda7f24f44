"""Changes to topics that a test needs done, whatever client it is about."""

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.compat.clients.client import DEADLINE_S


def add_partitions(bootstrap: str, topic: str, partition_count: int) -> None:
    """Give the topic so many partitions in all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partition_count)])[topic].result(DEADLINE_S)


def delete_records_before(bootstrap: str, topic: str, offset: int) -> None:
    """Let partition 0 of the topic begin at the offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    assert deleted.result(DEADLINE_S).low_watermark == offset


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
