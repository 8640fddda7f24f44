"""The consumer group protocol (KIP-848) with librdkafka: sharing, taking over, patterns, moving over from classic."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.compat.administration import add_partitions
from tests.compat.clients.client import Reader, Record
from tests.compat.clients.confluent import ConfluentClient, ConfluentReader
from tests.compat.clients.kafka_python import KafkaPythonClient
from tests.compat.conftest import NodeUnderTest, running_node
from tests.compat.reading import read
from tests.compat.test_groups import polled_assignments
from tests.eventually import eventually
from tests.proofs import CONFLUENT

pytestmark = pytest.mark.proves(
    *CONFLUENT, "KIP-848 groups: sharing, taking over, patterns, static members, from classic and back"
)

NOON_MS = 1_735_732_800_000
RECORDS = [Record(None, str(number).encode(), NOON_MS + number) for number in range(10)]
# Members hear of changes with their next heartbeat, so these must come quickly here.
CONFIGS = {
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 2_000,
    "group.consumer.session.timeout.ms": 2_000,
}
Join = Callable[..., Reader]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderTest]:
    with running_node(request.config, tmp_path_factory.mktemp("node"), CONFIGS) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(node: NodeUnderTest) -> str:
    return node.bootstrap


@pytest.fixture
def client(bootstrap: str) -> ConfluentClient:
    return ConfluentClient(bootstrap)


@pytest.fixture
def join(bootstrap: str, group: str) -> Join:
    """Start a member of the test's group: ``join(*topics, **settings)``."""

    def start(*topics: str, **settings: str) -> Reader:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe(list(topics))
        return ConfluentReader(consumer)

    return start


def test_three_members_share_and_one_takes_over_from_who_leaves(
    client: ConfluentClient, join: Join, topic: str
) -> None:
    client.create_topic(topic, partitions=6)
    everything = {(topic, partition) for partition in range(6)}
    with closing(join(topic)) as first:
        eventually(lambda: polled_assignments([first])[0] == everything, "one member with all partitions")
        second, third = join(topic), join(topic)

        def shared() -> bool:
            each = polled_assignments([first, second, third])
            return [len(mine) for mine in each] == [2, 2, 2] and set().union(*each) == everything

        eventually(shared, "two partitions for each member")
        second.close()
        third.close()
        eventually(lambda: polled_assignments([first])[0] == everything, "all partitions for who is left")


def test_group_goes_on_after_what_it_committed(client: ConfluentClient, join: Join, topic: str) -> None:
    client.create_topic(topic)
    with closing(client.writer()) as writer:
        writer.write(topic, RECORDS)
        with closing(join(topic)) as member:
            read(member, 10)
            member.commit()
        writer.write(topic, RECORDS[:3])

    with closing(join(topic)) as member:
        assert [stored.offset for stored in read(member, 3)] == [10, 11, 12]


def test_partitions_of_a_killed_member_are_taken_over(
    client: ConfluentClient, bootstrap: str, join: Join, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=2)
    script = (
        "from confluent_kafka import Consumer\n"
        f"c = Consumer({{'bootstrap.servers': {bootstrap!r}, 'group.id': {group!r}, 'group.protocol': 'consumer'}})\n"
        f"c.subscribe([{topic!r}])\n"
        "while len(c.assignment()) < 1: c.poll(0.1)\n"
        "print('ready', flush=True)\n"
        "while True: c.poll(0.1)\n"
    )
    with closing(join(topic)) as survivor:
        eventually(lambda: len(polled_assignments([survivor])[0]) == 2, "both partitions")
        victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        try:
            eventually(lambda: len(polled_assignments([survivor])[0]) == 1, "a partition for the other process")
        finally:
            victim.kill()
            victim.wait()
        eventually(lambda: len(polled_assignments([survivor])[0]) == 2, "the partition of the killed process")


def test_members_get_partitions_and_matching_topics_that_come_later(
    client: ConfluentClient, bootstrap: str, join: Join, topic: str
) -> None:
    client.create_topic(f"{topic}.a", partitions=1)
    with closing(join(f"^{topic}\\..*")) as member:
        eventually(lambda: polled_assignments([member])[0] == {(f"{topic}.a", 0)}, "the topic that matches")
        add_partitions(bootstrap, f"{topic}.a", 2)
        eventually(lambda: len(polled_assignments([member])[0]) == 2, "the added partition")
        client.create_topic(f"{topic}.b", partitions=1)
        client.create_topic(f"{topic}-c", partitions=1)
        wanted = {(f"{topic}.a", 0), (f"{topic}.a", 1), (f"{topic}.b", 0)}
        eventually(lambda: polled_assignments([member])[0] == wanted, "the topic that came later")


def test_static_member_gets_its_partitions_back(client: ConfluentClient, join: Join, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with closing(join(topic, group_instance_id="one")) as one:
        two = join(topic, group_instance_id="two")
        eventually(lambda: all(len(each) == 1 for each in polled_assignments([one, two])), "a partition for each")
        before = polled_assignments([one, two])
        two.close()

        with closing(join(topic, group_instance_id="two")) as two_again:
            eventually(lambda: polled_assignments([one, two_again])[1], "the partition of the member that came back")
            assert polled_assignments([one, two_again]) == before


def test_running_classic_group_moves_to_the_new_protocol_and_back(
    client: ConfluentClient, bootstrap: str, join: Join, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=4)
    classic = KafkaPythonClient(bootstrap).member(group, [topic])
    with closing(client.writer()) as writer, closing(classic):
        for partition in range(4):
            writer.write(topic, RECORDS, partition)
        seen = [(stored.partition, stored.offset) for stored in read(classic, 40)]
        classic.commit()

        new = join(topic)
        eventually(lambda: [len(each) for each in polled_assignments([classic, new])] == [2, 2], "two for each")
        assert group_type(bootstrap, group) == "CONSUMER"
        for partition in range(4):
            writer.write(topic, RECORDS, partition)

        def poll_both() -> bool:
            for member in (classic, new):
                seen.extend((stored.partition, stored.offset) for stored in member.poll())
            return len(seen) >= 80

        eventually(poll_both, "40 more records")
        new.commit()
        classic.commit()
        new.close()
        eventually(lambda: len(polled_assignments([classic])[0]) == 4, "all partitions for the classic member")
        assert group_type(bootstrap, group) == "CLASSIC"
        for partition in range(4):
            writer.write(topic, RECORDS[:1], partition)
        seen += [(stored.partition, stored.offset) for stored in read(classic, 4)]

    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(21)]


def group_type(bootstrap: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result()
    return next(str(each.type.name) for each in listed.valid if each.group_id == group)
