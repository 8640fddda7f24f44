"""Consumer groups (KIP-848) on three nodes: the coordinator is killed, and its successor goes on where it was."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.compat.clients.client import DEADLINE_S, Record
from tests.compat.clients.confluent import ConfluentReader, ConfluentWriter
from tests.compat.test_groups import polled_assignments
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_cluster import QuorateCluster

CONFIGS = {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.session.timeout.ms": 10_000}
TOPIC = "readings"
GROUP = "readers"
NOON_MS = 1_735_732_800_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path, configs=CONFIGS) as running:
        yield running


def member(cluster: QuorateCluster) -> ConfluentReader:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    return ConfluentReader(consumer)


def coordinator(cluster: QuorateCluster, asked: int) -> int:
    with WireClient(cluster.nodes[asked].bootstrap) as wire:
        return wire.call(FindCoordinatorRequest(key=GROUP), 3, FindCoordinatorResponse).node_id


def test_members_keep_their_partitions_and_offsets_when_the_coordinator_is_killed(cluster: QuorateCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, num_partitions=4, replication_factor=3)])[TOPIC].result(DEADLINE_S)
    records = [Record(None, b"reading", NOON_MS)] * 5
    seen: list[tuple[int, int]] = []
    first, second = member(cluster), member(cluster)
    settings: dict[str, str | int | bool] = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    with closing(first), closing(second), closing(ConfluentWriter(settings)) as writer:

        def read_and_commit(count: int) -> bool:
            for reader in (first, second):
                stored = reader.poll()
                seen.extend((each.partition, each.offset) for each in stored)
                if stored:
                    eventually(partial(committed, reader), "a commit")
            return len(seen) >= count

        eventually(lambda: [len(each) for each in polled_assignments([first, second])] == [2, 2], "two for each")
        before = polled_assignments([first, second])
        for partition in range(4):
            writer.write(TOPIC, records, partition)
        eventually(lambda: read_and_commit(20), "20 records")

        killed = coordinator(cluster, asked=7)
        cluster.kill([killed])
        survivor = next(node_id for node_id in cluster.nodes if node_id != killed)
        eventually(lambda: coordinator(cluster, survivor) not in (killed, -1), "another coordinator")
        for partition in range(4):
            writer.write(TOPIC, records, partition)
        eventually(lambda: read_and_commit(40), "40 records")
        assert polled_assignments([first, second]) == before, "nobody had to move"

        with closing(member(cluster)) as third:
            members = [first, second, third]
            eventually(
                lambda: sorted(len(each) for each in polled_assignments(members)) == [1, 1, 2], "a share for the third"
            )
        asked = ConsumerGroupTopicPartitions(GROUP)
        offsets = admin.list_consumer_group_offsets([asked])[GROUP].result(DEADLINE_S).topic_partitions
        assert sorted((each.partition, each.offset) for each in offsets) == [(index, 10) for index in range(4)]

    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(10)]


def committed(reader: ConfluentReader) -> bool:
    """A commit that meets the killed coordinator is repeated, as an application would."""
    try:
        reader.commit()
    except KafkaException:
        return False
    return True
