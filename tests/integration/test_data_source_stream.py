"""A stream's reader, called as Spark calls it but without Spark: positions as JSON, restarts, replays, losses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from quorate.backup.spark.data_source.live_reading import DataLoss
from quorate.backup.spark.data_source.options import parse_options
from quorate.backup.spark.data_source.stream_source import QuorateStreamReader
from quorate.kernel.errors import QuorateError
from tests.backup_commands import create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.table_rows import Row, consumed_rows, in_order, rows_of


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        yield node


@pytest.fixture(scope="module")
def admin(node: QuorateNode) -> Any:
    return AdminClient({"bootstrap.servers": node.bootstrap})


class Query:
    """What Spark keeps of a query: its options and, as text, how far it has come."""

    def __init__(self, node: QuorateNode, **options: str) -> None:
        self._options = parse_options({"bootstrap_servers": node.bootstrap, **options})
        self._checkpoint: str | None = None
        self.rows: list[Row] = []

    def run(self) -> int:
        """From the checkpoint to all that is there at the start, with a new reader; how many batches it took."""
        reader = self.restarted()
        reader.prepareForTriggerAvailableNow()
        batches = 0
        while (end := self.plan(reader)) is not None:
            self.rows += self.read(reader, end)
            self._checkpoint = end
            batches += 1
        return batches

    def restarted(self) -> QuorateStreamReader:
        reader = QuorateStreamReader(self._options)
        if self._checkpoint is None:
            self._checkpoint = json.dumps(reader.initialOffset())
        return reader

    def plan(self, reader: QuorateStreamReader) -> str | None:
        """Where the next batch ends; None where there is nothing new."""
        end = json.dumps(reader.latestOffset(self._start(), reader.getDefaultReadLimit()))
        return None if end == self._checkpoint else end

    def read(self, reader: QuorateStreamReader, end: str) -> list[Row]:
        tasks: list[InputPartition] = list(reader.partitions(self._start(), json.loads(end)))
        return in_order(row for task in tasks for batch in reader.read(task) for row in rows_of(batch))

    def _start(self) -> dict[str, Any]:
        assert self._checkpoint is not None
        start: dict[str, Any] = json.loads(self._checkpoint)
        return start


def test_each_record_comes_once_over_restarts_new_partitions_and_new_topics(node: QuorateNode, admin: Any) -> None:
    create_topics(node.bootstrap, NewTopic("clicks-a", 1))
    query = Query(node, topics="clicks-*", max_records_per_trigger="300")
    produce(node.bootstrap, "clicks-a", 500, partition=0)
    assert query.run() == 2
    assert query.run() == 0
    produce(node.bootstrap, "clicks-a", 20, partition=0, first=500)
    admin.create_partitions([NewPartitions("clicks-a", 2)])["clicks-a"].result()
    produce(node.bootstrap, "clicks-a", 30, partition=1, first=600)
    create_topics(node.bootstrap, NewTopic("clicks-b", 1))
    produce(node.bootstrap, "clicks-b", 40)
    assert query.run() == 1
    assert query.run() == 0

    expected = [*consumed_rows(node.bootstrap, "clicks-a", (0, 1)), *consumed_rows(node.bootstrap, "clicks-b")]
    assert len(query.rows) == 590
    assert in_order(query.rows) == expected


def test_batch_that_was_planned_is_the_same_when_it_is_read_again(node: QuorateNode) -> None:
    create_topics(node.bootstrap, NewTopic("replayed", 2))
    query = Query(node, topics="replayed")
    produce(node.bootstrap, "replayed", 100)
    end = query.plan(query.restarted())
    assert end is not None
    first = query.read(query.restarted(), end)
    produce(node.bootstrap, "replayed", 50, first=100)

    assert len(first) == 100
    assert query.read(query.restarted(), end) == first


def test_stream_that_begins_at_the_end_has_only_what_comes_later(node: QuorateNode) -> None:
    create_topics(node.bootstrap, NewTopic("late", 1))
    produce(node.bootstrap, "late", 10)
    query = Query(node, topics="late", start_offset="latest")
    assert query.run() == 0
    produce(node.bootstrap, "late", 5, first=10)
    assert query.run() == 1
    assert [row.offset for row in query.rows] == list(range(10, 15))


def test_limit_is_a_number_of_rows(node: QuorateNode) -> None:
    reader = Query(node, topics="late", max_records_per_trigger="7").restarted()
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)


@pytest.mark.parametrize("goes_on", [False, True])
def test_records_deleted_before_they_were_read_are_a_clear_error(node: QuorateNode, admin: Any, goes_on: bool) -> None:
    topic = f"deleted-{goes_on}".lower()
    create_topics(node.bootstrap, NewTopic(topic, 1))
    query = Query(node, topics=topic, fail_on_data_loss=str(not goes_on))
    produce(node.bootstrap, topic, 10)
    query.run()
    produce(node.bootstrap, topic, 10, first=10)
    for deleted in admin.delete_records([TopicPartition(topic, 0, 14)]).values():
        deleted.result()
    if goes_on:
        query.run()
        assert [row.offset for row in query.rows] == [*range(10), *range(14, 20)]
    else:
        with pytest.raises(DataLoss) as caught:
            query.run()
        assert f"offsets 10 to 13 of partition {topic}-0 were deleted before they were read" in str(caught.value)
        assert "fail_on_data_loss" in str(caught.value)


@pytest.mark.parametrize("goes_on", [False, True])
def test_topic_that_was_created_again_is_a_clear_error(node: QuorateNode, admin: Any, goes_on: bool) -> None:
    topic = f"again-{goes_on}".lower()
    create_topics(node.bootstrap, NewTopic(topic, 1))
    query = Query(node, topics=topic, fail_on_data_loss=str(not goes_on))
    produce(node.bootstrap, topic, 10)
    query.run()
    admin.delete_topics([topic])[topic].result()
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    create_topics(node.bootstrap, NewTopic(topic, 1))
    produce(node.bootstrap, topic, 12)
    if goes_on:
        query.run()
        assert [row.offset for row in query.rows] == [*range(10), *range(12)]
    else:
        with pytest.raises(DataLoss, match="was deleted and created again"):
            query.run()


def test_options_that_make_no_sense_for_a_stream_are_refused(node: QuorateNode) -> None:
    with pytest.raises(QuorateError, match="a stream has no end"):
        Query(node, topics="late", end_offset="5").restarted()
    with pytest.raises(QuorateError, match="a backup has an end and is no stream"):
        QuorateStreamReader(parse_options({"backup": "file:///backups", "backup_id": "nightly"}))
