"""Logs of which an Apache Kafka has all but the end in tiered storage (KIP-405): copied and read whole, also when that
storage hangs, fails or is throttled. A broker answers then with nothing, and mostly without an error."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from quorate.backup.spark.copy.run_report import RunReport
from quorate.backup.spark.upkeep.verification import take_inventory, verify_on_spark
from quorate.client.admin.configs import ConfigResource
from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.errors import PartitionUnavailable
from quorate.client.fetch.cursor import FetchCursor
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from quorate.protocol.codes import ResourceType
from tests.backup_commands import BACKUP_ID, SMALL_RANGES, Backups, RecordValue, produce
from tests.eventually import eventually
from tests.kafka.tiered_kafka import SEGMENT_BYTES, TIERED_TOPIC, TieredKafka
from tests.peers.jars import PeersUnavailableError, tiered_storage_jars
from tests.spark_session import InThisProcess, QuietWatcher, run_in_process
from tests.table_rows import consumed_rows, read_rows

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

TOPIC = "tiered"
PARTITIONS = 3
VALUE_BYTES = 1000
RECORDS = 3500
# A segment has many batches, in the order in which they were written.
PRODUCER = {"batch.size": 50_000, "enable.idempotence": True}
THROTTLE = "remote.log.manager.fetch.max.bytes.per.second"
EVERY_BROKER = ConfigResource(ResourceType.BROKER, "")


@pytest.fixture(scope="module")
def tiered(kafka_classpath: str) -> Iterator[TieredKafka]:
    try:
        tiered_storage_jars()
    except PeersUnavailableError as error:
        pytest.skip(str(error))
    with TieredKafka.launch() as running:
        yield running


@pytest.fixture(scope="module")
def client(tiered: TieredKafka) -> Iterator[KafkaClient]:
    with KafkaClient(ClientConfig(bootstrap_servers=(tiered.bootstrap,))) as opened:
        yield opened


@pytest.fixture(scope="module")
def topic(tiered: TieredKafka, client: KafkaClient) -> str:
    """Each partition has records numbered like their offsets; all but the last megabyte at most is remote only."""
    create(client, TOPIC, PARTITIONS)
    write(tiered, client, TOPIC, 0, RECORDS)
    return TOPIC


@pytest.fixture
def backups(tiered: TieredKafka, tmp_path: Path) -> Backups:
    return Backups(tmp_path, tiered.bootstrap)


def create(client: KafkaClient, topic: str, partitions: int) -> None:
    client.topics.create(
        [NewTopic(name=TopicName(topic), partitions=partitions, replication_factor=1, configs=TIERED_TOPIC)]
    )


def write(tiered: TieredKafka, client: KafkaClient, topic: str, first: int, count: int) -> None:
    content = {"first": first, "value_size": VALUE_BYTES, "settings": PRODUCER}
    for partition in range(PARTITIONS):
        produce(tiered.bootstrap, topic, count, partition=partition, **content)  # type: ignore[arg-type]
    wait_until_tiered(client, topic, PARTITIONS)


def wait_until_tiered(client: KafkaClient, topic: str, partitions: int) -> None:
    names = [TopicPartition(TopicName(topic), PartitionIndex(index)) for index in range(partitions)]
    ends = client.offsets.latest(names)

    def is_remote(name: TopicPartition) -> bool:
        local_start, end = client.offsets.earliest_local([name])[name].offset or 0, ends[name].offset or 0
        return end - local_start <= SEGMENT_BYTES // VALUE_BYTES

    eventually(lambda: all(map(is_remote, names)), "old segments to be in tiered storage only")
    assert {each.offset for each in client.offsets.earliest(names).values()} == {0}


def back_up(backups: Backups, topic: str, **backup: Any) -> RunReport:
    config = backups.write_config(topics={"include": [topic]}, backup={"mode": "incremental", **backup})
    report = run_in_process(backups, config, InThisProcess)
    assert report is not None
    return report


def assert_whole(backups: Backups, topic: str, count: int) -> None:
    expected: list[RecordValue] = [
        (number, str(number).encode(), f"{number}:".encode().ljust(VALUE_BYTES, b"v")) for number in range(count)
    ]
    for partition in range(PARTITIONS):
        assert backups.records(topic, partition) == expected, f"partition {partition}"
    assert_no_gap(backups, topic)
    inventory = take_inventory(backups.catalog())
    assert inventory is not None
    verified = verify_on_spark(InThisProcess(), backups.location, inventory, QuietWatcher())
    assert (verified.deep, verified.damages) == (True, [])


def assert_no_gap(backups: Backups, topic: str) -> None:
    entry = backups.manifest().latest(topic)
    assert entry is not None
    assert [partition.gaps for partition in entry.partitions] == [[]] * PARTITIONS


def test_what_is_in_tiered_storage_is_backed_up_by_each_run(
    tiered: TieredKafka, client: KafkaClient, name: str, backups: Backups
) -> None:
    create(client, name, PARTITIONS)
    write(tiered, client, name, 0, RECORDS)
    first = back_up(backups, name)
    # One task: the partitions share a Fetch.
    assert (first.state, first.tasks, first.record_count) == ("complete", 1, PARTITIONS * RECORDS), first
    assert_whole(backups, name, RECORDS)

    tiered.restart()  # The records so far are of an earlier leader epoch, which ends in tiered storage.
    more = RECORDS // 2
    write(tiered, client, name, RECORDS, more)
    second = back_up(backups, name)
    assert (second.state, second.truncations, second.record_count) == ("complete", 0, PARTITIONS * more), second
    assert_whole(backups, name, RECORDS + more)


def test_work_is_cut_by_the_size_of_whole_logs(topic: str, backups: Backups) -> None:
    """Leaders tell only the size of what is on their disks."""
    report = back_up(backups, topic, **SMALL_RANGES)
    assert report.tasks >= PARTITIONS * 2
    assert_whole(backups, topic, RECORDS)


def test_transactions_in_tiered_storage_are_read_as_a_consumer_reads_them(
    tiered: TieredKafka, client: KafkaClient, name: str, backups: Backups
) -> None:
    create(client, name, 1)
    producer = Producer({"bootstrap.servers": tiered.bootstrap, "transactional.id": name, **PRODUCER})
    producer.init_transactions()
    for number in range(8):
        producer.begin_transaction()
        for part in range(300):
            producer.produce(name, f"{number}-{part}".encode().ljust(VALUE_BYTES), partition=0)
        if number % 2:
            producer.flush()  # An aborted record that was never sent shows nothing.
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_until_tiered(client, name, 1)
    expected = consumed_rows(tiered.bootstrap, name)
    assert len(expected) == 4 * 300

    live = {"bootstrap_servers": tiered.bootstrap, "topics": name}
    assert read_rows(live) == expected
    assert read_rows({**live, "max_bytes_per_task": "300000"}) == expected
    assert back_up(backups, name).state == "complete"
    assert read_rows({"backup": backups.url, "backup_id": BACKUP_ID, "topics": name}) == expected


class RemoteStorage:
    """What can happen to the storage behind one topic, until the ``with`` block ends."""

    def __init__(self, tiered: TieredKafka, client: KafkaClient, topic: str) -> None:
        self.topic = topic
        self._tiered = tiered
        self._client = client

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Whoever reads one of the segments waits for somebody to write to it, and nobody does."""
        segment = self._a_segment()
        away = segment.rename(segment.with_suffix(".away"))
        os.mkfifo(segment)
        try:
            yield
        finally:
            os.close(os.open(segment, os.O_RDWR | os.O_NONBLOCK))  # Lets those go who wait.
            away.replace(segment)

    @contextmanager
    def failing(self) -> Iterator[None]:
        segment = self._a_segment()
        away = segment.rename(segment.with_suffix(".away"))
        try:
            yield
        finally:
            away.rename(segment)

    @contextmanager
    def throttled(self) -> Iterator[None]:
        self._client.configs.alter(EVERY_BROKER, {THROTTLE: "1"})
        try:
            yield
        finally:
            self._client.configs.alter(EVERY_BROKER, {}, delete=[THROTTLE])

    def _a_segment(self) -> Path:
        return self._tiered.remote_segments(self.topic, 1)[1]


@pytest.fixture
def storage(tiered: TieredKafka, client: KafkaClient, topic: str) -> RemoteStorage:
    return RemoteStorage(tiered, client, topic)


def test_storage_that_gives_nothing_up_to_the_deadline_is_a_failure_and_no_gap(
    storage: RemoteStorage, backups: Backups
) -> None:
    with storage.throttled():
        report = back_up(backups, storage.topic, deadline_ms=1500)
    assert report.state == "partial"
    messages = [failure.message for failure in report.failures]
    assert messages, report
    assert all("is in tiered storage" in message for message in messages), messages
    assert_no_gap(backups, storage.topic)

    assert back_up(backups, storage.topic).state == "complete"
    assert_whole(backups, storage.topic, RECORDS)


@pytest.mark.parametrize(
    ("trouble", "sign"),
    [
        (RemoteStorage.hanging, "is in tiered storage"),
        (RemoteStorage.throttled, "is in tiered storage"),
        (RemoteStorage.failing, "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_storage_in_trouble_for_a_moment_loses_nothing(
    storage: RemoteStorage,
    backups: Backups,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[RemoteStorage], AbstractContextManager[None]],
    sign: str,
) -> None:
    """It ends when the client is put off for the third time."""
    causes: list[str] = []
    plan_attempt = FetchCursor.failed
    with ExitStack() as lasting:
        lasting.enter_context(trouble(storage))

        def failed(
            cursor: FetchCursor, cause: str, now_ms: int, *, at_once: bool = False
        ) -> PartitionUnavailable | None:
            causes.append(cause)
            if len(causes) == 3:
                lasting.close()
            return plan_attempt(cursor, cause, now_ms, at_once=at_once)

        monkeypatch.setattr(FetchCursor, "failed", failed)
        report = back_up(backups, storage.topic)

    assert report.state == "complete", report
    assert len(causes) >= 3
    assert all(sign in cause for cause in causes), causes
    assert_whole(backups, storage.topic, RECORDS)
