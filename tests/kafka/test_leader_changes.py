"""Leaders that move, die and come back while the client reads and writes: nothing is lost, doubled or misrouted."""

from collections.abc import Iterator

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.errors import LogTruncated
from quorate.client.fetch.batches import FetchedBatches, FetchRange
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import NodeId, Offset, PartitionIndex, TopicName
from quorate.records.batch import DetachedBatch, detach
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.eventually import eventually
from tests.kafka.conftest import OpenClient
from tests.kafka.leadership import Leadership
from tests.kafka.secured_kafka import NODE_IDS, SecuredKafka
from tests.kafka.test_fetch import iterate_each
from tests.kafka.writing import records_of, values, values_of, write


def assigned(client: KafkaClient, topic: str, *replicas: tuple[int, ...], **configs: str) -> None:
    client.topics.create(
        [
            NewTopic(
                name=TopicName(topic),
                assignments={
                    PartitionIndex(index): [NodeId(node_id) for node_id in nodes]
                    for index, nodes in enumerate(replicas)
                },
                configs={key.replace("_", "."): value for key, value in configs.items()},
            )
        ]
    )


def batch_of(*contents: bytes) -> DetachedBatch:
    records = [Record(Offset(offset), 1_700_000_000_000, None, value) for offset, value in enumerate(contents)]
    return detach(build_batch(records))


def test_a_fetch_loop_follows_the_leader(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, name: str
) -> None:
    assigned(client, name, (7, 100, 4001))
    content = values(400)
    write(kafka.bootstrap, name, 0, content, **{"batch.num.messages": 5})
    nodes, records = [], []
    targets = {100: 4001, 200: 100, 300: 7}
    for piece in client.fetch_range(name, 0, 0, 400, max_bytes=500):
        nodes.append(piece.node_id)
        records += [record.value for record in iterate_each(piece)]
        due = [at for at in targets if at <= len(records)]
        for at in due:
            leadership.move(name, 0, targets.pop(at))
    assert records == content
    assert set(nodes) == set(NODE_IDS)
    assert client.leaders_followed == 3


def test_one_partition_that_moves_disturbs_no_other(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, name: str
) -> None:
    assigned(client, name, (7, 100), (4001, 100))
    for index in range(2):
        write(kafka.bootstrap, name, index, values(200), **{"batch.num.messages": 5})
    ranges = [
        FetchRange(
            topic=TopicName(name), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(200)
        )
        for index in range(2)
    ]
    nodes: dict[int, set[int]] = {0: set(), 1: set()}
    counts = {0: 0, 1: 0}
    has_moved = False
    for piece in client.fetch_ranges(ranges, max_bytes=1000):
        assert isinstance(piece, FetchedBatches)
        nodes[piece.range.partition].add(piece.node_id)
        counts[piece.range.partition] += len(iterate_each(piece))
        if not has_moved and counts[0] >= 50:
            leadership.move(name, 0, 100)
            has_moved = True
    assert counts == {0: 200, 1: 200}
    assert nodes == {0: {7, 100}, 1: {4001}}


def test_each_batch_is_appended_once_while_the_leader_moves(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, name: str
) -> None:
    assigned(client, name, (100, 7, 4001))
    producer = client.idempotent_producer()
    content = values(120)

    def batches() -> Iterator[DetachedBatch]:
        for number, value in enumerate(content):
            if number in (30, 60, 90):
                leadership.move(name, 0, {30: 7, 60: 4001, 90: 100}[number])
            yield batch_of(value)

    produced = list(producer.send_all(name, 0, batches()))
    assert [batch.base_offset for batch in produced] == list(range(120))
    assert values_of(records_of(client.fetch_range(name, 0, 0, 120))) == content
    assert client.leaders_followed == 3


def test_a_batch_that_is_sent_again_is_appended_once(client: KafkaClient, name: str) -> None:
    """As after a crash: the same producer id and sequence, from another client object."""
    assigned(client, name, (4001, 7, 100))
    first = client.idempotent_producer()
    assert first.send(name, 0, batch_of(b"a", b"b")).base_offset == 0
    second = client.idempotent_producer(first.identity)
    again = second.send(name, 0, batch_of(b"a", b"b"))
    assert again.base_offset in (0, None)
    assert second.send(name, 0, batch_of(b"c")).base_offset == 2
    assert values_of(records_of(client.fetch_range(name, 0, 0, 3))) == [b"a", b"b", b"c"]


def test_a_broker_that_dies_and_comes_back_in_the_middle_of_a_fetch_loop(
    kafka: SecuredKafka, open_client: OpenClient, leadership: Leadership, name: str
) -> None:
    client = open_client(kafka.bootstrap)
    assigned(client, name, (7, 100, 4001), (100, 4001, 7), (4001, 7, 100))
    content = values(300)
    for index in range(3):
        write(kafka.bootstrap, name, index, content, **{"batch.num.messages": 5})
    ranges = [
        FetchRange(
            topic=TopicName(name), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(300)
        )
        for index in range(3)
    ]
    found: dict[int, list[object]] = {0: [], 1: [], 2: []}
    steps = {100: kafka.nodes[100].kill, 500: kafka.nodes[100].restart}
    for piece in client.fetch_ranges(ranges, max_bytes=600):
        assert isinstance(piece, FetchedBatches)
        found[piece.range.partition] += [record.value for record in iterate_each(piece)]
        total = sum(map(len, found.values()))
        for at in [at for at in steps if at <= total]:
            steps.pop(at)()
    for step in steps.values():
        step()
    assert found == {0: content, 1: content, 2: content}
    assert client.leaders_followed >= 1
    eventually(lambda: leadership.in_sync(name) == set(NODE_IDS), "all replicas in sync", within_s=60)


def test_a_log_that_was_cut_back_is_noticed(
    kafka: SecuredKafka, open_client: OpenClient, leadership: Leadership, name: str
) -> None:
    """An unclean election puts a replica in charge that never had the last records."""
    client = open_client(kafka.bootstrap, retry_timeout_ms=120_000)
    assigned(client, name, (7, 100), min_insync_replicas="1", unclean_leader_election_enable="true")
    write(kafka.bootstrap, name, 0, values(10), acks="all")
    kafka.nodes[100].kill()
    eventually(lambda: leadership.in_sync(name) == {7}, "the follower out of sync", within_s=60)
    write(kafka.bootstrap, name, 0, values(10))
    pieces = list(client.fetch_range(name, 0, 0, 20))
    epoch = pieces[-1].leader_epoch
    kafka.nodes[7].kill()
    kafka.nodes[100].restart()
    eventually(lambda: leadership.leader(name) == 100, "the unclean election", within_s=60)
    write(kafka.bootstrap, name, 0, values(15))
    with pytest.raises(LogTruncated, match=name) as caught:
        list(client.fetch_range(name, 0, 20, 25, last_fetched_epoch=epoch))
    assert caught.value.diverging_end_offset == 10
    kafka.nodes[7].restart()
    eventually(lambda: leadership.in_sync(name) == {7, 100}, "all replicas in sync", within_s=60)
