"""Ranges of raw batches, read from real logs: complete, exact at their borders, byte for byte what the broker has."""

import random
from itertools import pairwise
from uuid import UUID

import pytest
from confluent_kafka import Producer

from quorate.client.admin.topics import NewTopic
from quorate.client.errors import LogEndsEarly, OffsetOutOfRange, TopicReplaced
from quorate.client.fetch.batches import AbortedProducer, FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName
from quorate.records.record import Record, iterate_records
from tests.eventually import eventually
from tests.kafka.conftest import Cluster, OpenClient
from tests.kafka.secured_kafka import SecuredKafka
from tests.kafka.test_admin import created, partition_of
from tests.kafka.writing import records_of, values, values_of, write

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_was_written(
    any_cluster: Cluster, any_client: KafkaClient, name: str, codec: str
) -> None:
    created(any_client, name)
    content = values(500)
    write(any_cluster.bootstrap, name, 0, content, **{"compression.type": codec, "batch.num.messages": 70})
    records = records_of(any_client.fetch_range(name, 0, 0, 500, max_bytes=4096))
    assert [record.offset for record in records] == list(range(500))
    assert values_of(records) == content


def test_touching_ranges_give_every_batch_exactly_once(
    any_cluster: Cluster, any_client: KafkaClient, name: str
) -> None:
    """Wherever the borders lie, inside of batches too."""
    created(any_client, name)
    write(any_cluster.bootstrap, name, 0, values(300), **{"batch.num.messages": 7})
    whole = [bytes(piece.data) for piece in any_client.fetch_range(name, 0, 0, 300)]
    choice = random.Random(3)
    for _ in range(10):
        borders = [0, *sorted(choice.sample(range(1, 300), 5)), 300]
        parts = [
            bytes(piece.data)
            for start, end in pairwise(borders)
            for piece in any_client.fetch_range(name, 0, start, end, max_bytes=1500)
        ]
        assert b"".join(parts) == b"".join(whole), borders


def test_a_batch_across_the_end_can_be_included(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    write(any_cluster.bootstrap, name, 0, values(20), **{"linger.ms": 500})
    without = list(any_client.fetch_range(name, 0, 0, 10))
    assert records_of(without) == []
    assert [piece.is_last for piece in without] == [True]
    included = records_of(any_client.fetch_range(name, 0, 0, 10, include_batch_across_end=True))
    assert len(included) >= 10


def test_a_batch_larger_than_the_limit_is_fetched_whole(
    any_cluster: Cluster, any_client: KafkaClient, name: str
) -> None:
    created(any_client, name)
    content = values(5, size_bytes=200_000)
    write(any_cluster.bootstrap, name, 0, content)
    assert values_of(records_of(any_client.fetch_range(name, 0, 0, 5, max_bytes=1000))) == content


def test_many_partitions_come_from_all_their_leaders(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=9)
    for index in range(9):
        write(any_cluster.bootstrap, name, index, values(50 * index))
    ranges = [
        FetchRange(
            topic=TopicName(name),
            partition=PartitionIndex(index),
            start_offset=Offset(0),
            end_offset=Offset(50 * index),
        )
        for index in range(9)
    ]
    counts, last, nodes = dict.fromkeys(range(9), 0), [], set()
    for piece in any_client.fetch_ranges(ranges, max_bytes=3000):
        assert isinstance(piece, FetchedBatches)
        counts[piece.range.partition] += sum(1 for _ in iterate_each(piece))
        last += [piece.range.partition] if piece.is_last else []
        nodes |= {piece.node_id} if piece.batch_count else set()
    assert counts == {index: 50 * index for index in range(9)}
    assert sorted(last) == list(range(9))
    leaders = {
        found.leader for found in any_client.cluster.metadata([name]).topics[TopicName(name)].partitions.values()
    }
    assert nodes == leaders


def iterate_each(piece: FetchedBatches) -> list[Record]:
    return [record for batch in piece.walk() for record in iterate_records(piece.data, batch.position)]


def test_the_memory_of_a_piece_is_gone_with_the_next(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    write(any_cluster.bootstrap, name, 0, values(200), **{"batch.num.messages": 10})
    pieces = any_client.fetch_range(name, 0, 0, 200, max_bytes=2000)
    first = next(pieces)
    assert len(first.data) > 0
    next(pieces)
    with pytest.raises(ValueError, match="released"):
        bytes(first.data)
    pieces.close()  # type: ignore[attr-defined]
    assert len(records_of(any_client.fetch_range(name, 0, 0, 200))) == 200


def test_a_range_below_the_log_start_says_where_the_log_starts(
    any_cluster: Cluster, any_client: KafkaClient, name: str
) -> None:
    created(any_client, name)
    write(any_cluster.bootstrap, name, 0, values(20), **{"batch.num.messages": 4})
    any_client.topics.delete_records({partition_of(name): Offset(10)})
    with pytest.raises(OffsetOutOfRange) as caught:
        list(any_client.fetch_range(name, 0, 0, 20))
    assert caught.value.is_below_log_start
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (10, 20)
    offsets = [record.offset for record in records_of(any_client.fetch_range(name, 0, 10, 20))]
    assert offsets[-10:] == list(range(10, 20))


def test_a_range_past_the_end_says_where_the_log_ends(any_cluster: Cluster, open_client: OpenClient, name: str) -> None:
    client = open_client(any_cluster.bootstrap, retry_timeout_ms=1500)
    created(client, name)
    write(any_cluster.bootstrap, name, 0, values(5))
    with pytest.raises(OffsetOutOfRange) as caught:
        list(client.fetch_range(name, 0, 6, 10))
    assert not caught.value.is_below_log_start
    with pytest.raises(LogEndsEarly) as early:
        records_of(client.fetch_range(name, 0, 0, 10))
    assert early.value.next_offset == 5


def test_one_range_that_fails_leaves_the_others_alone(any_cluster: Cluster, any_client: KafkaClient, name: str) -> None:
    created(any_client, name, partitions=2)
    for index in range(2):
        write(any_cluster.bootstrap, name, index, values(30))
    any_client.topics.delete_records({partition_of(name, 0): Offset(20)})
    ranges = [
        FetchRange(
            topic=TopicName(name), partition=PartitionIndex(index), start_offset=Offset(0), end_offset=Offset(30)
        )
        for index in range(2)
    ]
    failed, count = [], 0
    for outcome in any_client.fetch_ranges(ranges):
        if isinstance(outcome, RangeFailed):
            failed.append((outcome.range.partition, type(outcome.error)))
        else:
            count += len(iterate_each(outcome))
    assert failed == [(0, OffsetOutOfRange)]
    assert count == 30


def test_an_empty_range_is_done_at_once(any_client: KafkaClient, name: str) -> None:
    created(any_client, name)
    (piece,) = any_client.fetch_range(name, 0, 0, 0)
    assert piece.is_last
    assert piece.batch_count == 0


def test_a_topic_of_the_same_name_is_not_taken_for_the_one_that_was_meant(
    any_cluster: Cluster, any_client: KafkaClient, name: str
) -> None:
    created(any_client, name)
    write(any_cluster.bootstrap, name, 0, values(1))
    other = TopicId(UUID(int=1))
    with pytest.raises(TopicReplaced, match=name):
        list(any_client.fetch_range(name, 0, 0, 1, topic_id=other))


def test_aborted_transactions_are_named(kafka: SecuredKafka, client: KafkaClient, name: str) -> None:
    created(client, name)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        producer.produce(name, outcome.encode(), partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if outcome == "commit" else producer.abort_transaction(30)
    partition = partition_of(name)
    eventually(
        lambda: client.offsets.latest([partition], IsolationLevel.READ_COMMITTED)[partition].offset == 6, "all markers"
    )
    aborted: list[AbortedProducer] = []
    controls, kinds = 0, []
    for piece in client.fetch_range(name, 0, 0, 6, isolation=IsolationLevel.READ_COMMITTED):
        aborted += piece.aborted_transactions
        assert piece.last_stable_offset == 6
        for batch in piece.walk():
            assert batch.header is not None
            controls += batch.header.is_control
            if not batch.header.is_control:
                kinds += [record.value for record in iterate_records(piece.data, batch.position)]
    assert [found.first_offset for found in aborted] == [2]
    assert (controls, kinds) == (3, [b"commit", b"abort", b"commit"])


def test_nothing_past_an_open_transaction_is_read(kafka: SecuredKafka, open_client: OpenClient, name: str) -> None:
    client = open_client(kafka.bootstrap, retry_timeout_ms=1500)
    created(client, name)
    write(kafka.bootstrap, name, 0, values(2))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(30)
    with pytest.raises(LogEndsEarly) as caught:
        list(client.fetch_range(name, 0, 0, 3, isolation=IsolationLevel.READ_COMMITTED))
    assert caught.value.next_offset == 2
    producer.abort_transaction(30)


def test_the_nearest_replica_is_read_where_a_rack_is_given(
    kafka: SecuredKafka, open_client: OpenClient, name: str
) -> None:
    client = open_client(kafka.bootstrap, rack="rack-100")
    client.topics.create([NewTopic(name=TopicName(name), assignments={PartitionIndex(0): (7, 100, 4001)})])  # type: ignore[dict-item]
    write(kafka.bootstrap, name, 0, values(100), acks="all")
    nodes: list[int] = []
    records: list[Record] = []
    for piece in client.fetch_range(name, 0, 0, 100, max_bytes=2000):
        nodes.append(piece.node_id)
        records += iterate_each(piece)
    assert len(records) == 100
    assert set(nodes) == {100}


def test_a_topic_that_does_not_exist_is_one_clear_error(any_client: KafkaClient, name: str) -> None:
    with pytest.raises(KafkaError, match=name) as caught:
        list(any_client.fetch_range(name, 0, 0, 1))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
