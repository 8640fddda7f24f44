"""Consumer groups (KIP-848) on three nodes: a coordinator is killed, and its successor goes on where it was.

Each test starts the nodes again that it has killed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Message, NewTopic

from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.compat.clients.client import DEADLINE_S, Record
from tests.compat.clients.confluent import ConfluentReader, ConfluentWriter
from tests.compat.test_groups import polled_assignments
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_cluster import QuorateCluster
from tests.proofs import CONFLUENT

pytestmark = pytest.mark.proves(
    *CONFLUENT, "KIP-848 groups on three nodes: coordinator and leader killed, each record read, offsets kept"
)

CONFIGS = {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.session.timeout.ms": 10_000}
PARTITIONS = 4
NOON_MS = 1_735_732_800_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    with QuorateCluster(tmp_path_factory.mktemp("cluster"), configs=CONFIGS) as running:
        yield running


@pytest.fixture
def admin(cluster: QuorateCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


class Members:
    """Members of a group that read, and commit what they have read, again and again."""

    def __init__(self, cluster: QuorateCluster, group: str, topic: str) -> None:
        self.group = group
        self.readers = [member(cluster, group, topic) for _ in range(2)]
        self.seen: list[tuple[int, int]] = []
        eventually(lambda: [len(each) for each in self.assignments()] == [2, 2], "two partitions for each member")

    def assignments(self) -> list[set[tuple[str, int]]]:
        return polled_assignments(self.readers)

    def read_until(self, condition: Callable[[], bool], what: str) -> None:
        def read() -> bool:
            for reader in self.readers:
                stored = reader.poll()
                self.seen.extend((each.partition, each.offset) for each in stored)
                if stored:
                    eventually(partial(committed, reader), "a commit")
            return condition()

        eventually(read, what)

    def committed_offsets(self, admin: AdminClient) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(self.group)
        offsets = admin.list_consumer_group_offsets([asked])[self.group].result(DEADLINE_S).topic_partitions
        return {each.partition: each.offset for each in offsets}

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


def member(cluster: QuorateCluster, group: str, topic: str) -> ConfluentReader:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return ConfluentReader(consumer)


def committed(reader: ConfluentReader) -> bool:
    """A commit that meets the killed coordinator is repeated, as an application would."""
    try:
        reader.commit()
    except KafkaException:
        return False
    return True


@contextmanager
def killed(cluster: QuorateCluster, node_id: int) -> Iterator[int]:
    """Kill a node; start it again at the end. Gives one of those that are left."""
    cluster.kill([node_id])
    try:
        yield next(each for each in cluster.nodes if each != node_id)
    finally:
        cluster.restart([node_id])


def coordinator(cluster: QuorateCluster, group: str, asked: int = 7) -> int:
    with WireClient(cluster.nodes[asked].bootstrap) as wire:
        return wire.call(FindCoordinatorRequest(key=group), 3, FindCoordinatorResponse).node_id


def create_topic(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3)
    admin.create_topics([new])[topic].result(DEADLINE_S)


def test_members_keep_their_partitions_and_offsets_when_the_coordinator_is_killed(
    cluster: QuorateCluster, admin: AdminClient
) -> None:
    topic, group = "readings", "readers"
    create_topic(admin, topic)
    records = [Record(None, b"reading", NOON_MS)] * 5
    settings: dict[str, str | int | bool] = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
    with closing(Members(cluster, group, topic)) as members, closing(ConfluentWriter(settings)) as writer:
        before = members.assignments()
        for partition in range(PARTITIONS):
            writer.write(topic, records, partition)
        members.read_until(lambda: len(members.seen) >= 20, "20 records")

        victim = coordinator(cluster, group)
        with killed(cluster, victim) as survivor:
            eventually(lambda: coordinator(cluster, group, survivor) not in (victim, -1), "another coordinator")
            for partition in range(PARTITIONS):
                writer.write(topic, records, partition)
            members.read_until(lambda: len(members.seen) >= 40, "40 records")
            assert members.assignments() == before, "nobody had to move"

            with closing(member(cluster, group, topic)) as third:
                everyone = [*members.readers, third]
                eventually(
                    lambda: sorted(len(each) for each in polled_assignments(everyone)) == [1, 1, 2],
                    "a share for the third",
                )
        assert members.committed_offsets(admin) == dict.fromkeys(range(PARTITIONS), 10)

    assert sorted(members.seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(10)]


class SteadyWriter:
    """Writes all the time, on a thread of its own, to each partition in turn."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
        self._topic = topic
        self._stopping = threading.Event()
        self.acknowledged: set[tuple[int, int]] = set()
        self.refused: list[object] = []
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.wait(0.001):
            self._producer.produce(self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            self.acknowledged.add((message.partition() or 0, message.offset() or 0))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0


def test_every_record_is_read_while_the_coordinator_and_then_a_leader_are_killed(
    cluster: QuorateCluster, admin: AdminClient
) -> None:
    topic, group = "stream", "stream-readers"
    create_topic(admin, topic)
    with closing(Members(cluster, group, topic)) as members:
        with closing(SteadyWriter(cluster.bootstrap, topic)) as writer:

            def read_more(when: str) -> None:
                """Records of all partitions that were written after this moment."""
                written = max(offset for _, offset in writer.acknowledged) if writer.acknowledged else 0

                def all_went_on() -> bool:
                    return {partition for partition, offset in members.seen if offset > written + 5} == set(
                        range(PARTITIONS)
                    )

                members.read_until(all_went_on, f"records of all partitions {when}")

            read_more("before anything happens")
            with killed(cluster, coordinator(cluster, group)):
                read_more("after the coordinator's end")
            eventually(partial(all_in_sync, admin, topic), "all replicas in sync again")
            read_more("while the killed node is back")
            with killed(cluster, leader_that_does_not_coordinate(cluster, admin, topic, group)):
                read_more("after a leader's end")
        assert not writer.refused
        members.read_until(lambda: writer.acknowledged <= set(members.seen), "every record that was acknowledged")
        ends = {
            index: 1 + max(offset for partition, offset in writer.acknowledged if partition == index)
            for index in range(PARTITIONS)
        }
        assert members.committed_offsets(admin) == ends


def all_in_sync(admin: AdminClient, topic: str) -> bool:
    partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
    return all(len(each.isrs) == len(each.replicas) for each in partitions)


def leader_that_does_not_coordinate(cluster: QuorateCluster, admin: AdminClient, topic: str, group: str) -> int:
    coordinating = coordinator(cluster, group)
    partitions = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions.values()
    return next(each.leader for each in partitions if each.leader not in (coordinating, -1))
