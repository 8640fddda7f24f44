"""The data source on local Spark over a Quorate node: batch reads, streams that resume, and an export."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from pyspark.errors import StreamingQueryException

from quorate.backup.spark.data_source.export import ExportRequest, run_export
from quorate.kernel.errors import QuorateError
from quorate.spark import register
from tests.backup_commands import BACKUP_ID, SMALL_RANGES, Backups, create_topics, produce
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import InThisProcess, local_spark, run_in_process
from tests.table_rows import NOON_MS, consumed_rows, read_rows, spark_rows, write_everything


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(
            node.bootstrap,
            NewTopic("orders", 2, config={"retention.ms": "-1"}),
            NewTopic("payments", 1),
            NewTopic("clicks", 1),
        )
        write_everything(node.bootstrap, "orders", 1)
        produce(node.bootstrap, "payments", 30)
        yield node


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with local_spark() as driver:
        driver.query(register, Watcher())
        yield driver


class Watcher:
    """Remembers the last count."""

    def __init__(self) -> None:
        self.counts = (0, 0)

    def tasks_counted(self, finished_count: int, task_count: int) -> None:
        self.counts = (finished_count, task_count)


def session_of(spark: Any) -> Any:
    return spark.query(lambda session: session, Watcher())


def test_rows_are_what_a_consumer_reads(node: QuorateNode, spark: Any) -> None:
    options = {"bootstrap_servers": node.bootstrap, "topics": "ord*,payments", "exclude_topics": "pay*"}
    frame = session_of(spark).read.format("quorate").options(**options).load()

    assert spark_rows(frame) == consumed_rows(node.bootstrap, "orders", (0, 1))


def test_options_choose_columns_and_rows(node: QuorateNode, spark: Any) -> None:
    options = {
        "topics": "orders",
        "partitions": "1",
        "start_offset": "30",
        "end_offset": "170",
        "columns": "offset,key",
    }
    reader = session_of(spark).read.format("quorate").option("bootstrap_servers", node.bootstrap)
    frame = reader.options(start_time=str(NOON_MS + 100), end_time=str(NOON_MS + 900), **options).load()

    expected = [
        (row.offset, row.key)
        for row in consumed_rows(node.bootstrap, "orders", (1,))
        if 30 <= row.offset < 170 and NOON_MS + 100 <= (row.timestamp_ms or 0) <= NOON_MS + 900
    ]
    assert frame.columns == ["offset", "key"]
    assert sorted((row.offset, row.key) for row in frame.collect()) == expected
    assert 0 < len(expected) < 140


def test_rows_of_a_backup_are_all_there_where_its_ranges_end_inside_batches(node: QuorateNode, tmp_path: Path) -> None:
    create_topics(node.bootstrap, NewTopic("batches", 1))
    produce(node.bootstrap, "batches", 7_001, value_size=1000, settings={"linger.ms": 50})
    backups = Backups(tmp_path, node.bootstrap)
    config = backups.write_config(topics={"include": ["batches"]}, backup=SMALL_RANGES)
    assert run_in_process(backups, config, InThisProcess) is not None

    rows = read_rows({"backup": backups.url, "backup_id": BACKUP_ID, "topics": "batches"})

    assert [row.offset for row in rows] == list(range(7_001))
    (topic,) = backups.manifest().topics
    segments = topic.partitions[0].segments
    assert any(each.last_offset >= each.end_offset for each in segments), "no batch reaches over the end of a range"


@pytest.mark.timeout(900)
def test_stream_has_each_record_once_over_restarts_and_finds_new_partitions(
    node: QuorateNode, spark: Any, tmp_path: Path
) -> None:
    produce(node.bootstrap, "clicks", 500, partition=0)
    _run_stream(session_of(spark), node, tmp_path)
    produce(node.bootstrap, "clicks", 300, partition=0, first=500)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_partitions([NewPartitions("clicks", 2)])["clicks"].result()
    produce(node.bootstrap, "clicks", 50, partition=1, first=800)
    _run_stream(session_of(spark), node, tmp_path)

    found = spark_rows(session_of(spark).read.parquet(str(tmp_path / "table")))

    assert found == consumed_rows(node.bootstrap, "clicks", (0, 1))
    assert len(found) == 850


def test_export_is_a_table_of_every_column(node: QuorateNode, spark: Any, tmp_path: Path) -> None:
    request = ExportRequest(
        options={"bootstrap_servers": node.bootstrap, "topics": "orders,payments"}, output=str(tmp_path / "table")
    )
    (tmp_path / "table" / "_temporary").mkdir(parents=True)  # As an export that was killed leaves it.
    watcher = Watcher()

    report = run_export(spark, request, watcher)

    expected = [*consumed_rows(node.bootstrap, "orders", (1,)), *consumed_rows(node.bootstrap, "payments")]
    assert report.record_count == len(expected)
    assert watcher.counts[0] == watcher.counts[1] > 0
    assert spark_rows(session_of(spark).read.parquet(str(tmp_path / "table"))) == expected
    assert sorted(path.name for path in (tmp_path / "table").glob("topic=*")) == ["topic=orders", "topic=payments"]
    with pytest.raises(QuorateError, match="holds a finished export"):
        run_export(spark, request, watcher)


def test_mistake_is_told_in_one_sentence(node: QuorateNode, spark: Any, tmp_path: Path) -> None:
    options = {"bootstrap_servers": node.bootstrap, "topics": "nothing-of-that-name"}
    with pytest.raises(QuorateError) as caught:
        run_export(spark, ExportRequest(options=options, output=str(tmp_path / "table")), Watcher())
    assert str(caught.value) == "topic nothing-of-that-name does not exist"


def _run_stream(session: Any, node: QuorateNode, folder: Path) -> None:
    """All that is there now."""
    options = {"bootstrap_servers": node.bootstrap, "topics": "clicks"}
    frame = session.readStream.format("quorate").options(**options).load()
    places = {"path": str(folder / "table"), "checkpointLocation": str(folder / "checkpoint")}

    def is_over() -> bool:
        query = frame.writeStream.format("parquet").options(**places).trigger(availableNow=True).start()
        try:
            return bool(query.awaitTermination(240))
        except StreamingQueryException as error:
            # Spark gives a Python process ten seconds to start, too few on a busy machine: the stream resumes.
            if "failed to connect back" not in str(error):
                raise
            return False

    eventually(is_over, "Spark to start the stream's Python process", within_s=600)
