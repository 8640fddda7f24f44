"""Restores that stop half-way and go on, start over, or are disturbed: in this process, into a Quorate node."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.objects.opening import open_storage
from quorate.backup.restore.outgoing import PartitionAssignment
from quorate.backup.restore.plan import RestorePlan, TargetTopic
from quorate.backup.spark.restore.preparation import SurveyTask
from quorate.backup.spark.restore.restore_run import RestoreReport
from quorate.backup.spark.restore.target import RestoreTarget
from quorate.backup.spark.restore.write_task import PartitionWriter, WriteTask, write_in_lanes
from quorate.backup.spark.session.job import JobWatcher, SparkDriver
from quorate.backup.spark.session.tasks import Work
from quorate.client.idempotent_producer import ProducerIdentity
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import Backups, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of, topic_configs, without_offsets
from tests.spark_session import EventBefore, InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(120)

RECORDS = 3000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        for topic in ("orders", "payments"):
            create_topics(node.bootstrap, NewTopic(topic, 1))
            produce(node.bootstrap, topic, RECORDS, settings={"batch.num.messages": 10})
        yield node


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


@pytest.fixture
def restores(node: QuorateNode, tmp_path: Path) -> Restores:
    backups = Backups(tmp_path, node.bootstrap)
    config = backups.write_config(topics={"include": ["orders", "payments"]})
    assert run_in_process(backups, config, InThisProcess) is not None
    return Restores(backups, node.bootstrap)


class StopsBeforeWriting(InThisProcess):
    """The survey runs, and the first write fails."""

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        if isinstance(work, WriteTask):
            raise QuorateError("the power went out")
        return super().run(work, tasks, watcher)


class AlwaysMine:
    """A claim that is never lost: as if the older attempt did not notice the newer one."""

    def check(self) -> None:
        pass

    def check_now(self) -> None:
        pass


class WritesEverythingThreeTimesAtOnce(InThisProcess):
    """Attempts that know nothing of each other write the same partitions at the same time."""

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        if isinstance(work, WriteTask):
            beginning = threading.Barrier(3)
            threads = [threading.Thread(target=self._write, args=(work, tasks, beginning)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return super().run(work, tasks, watcher)

    @staticmethod
    def _write(work: WriteTask, tasks: Sequence[bytes], beginning: threading.Barrier) -> None:
        settings = work.settings
        storage = open_storage(settings.location)
        with KafkaClient(settings.client) as client:
            producer = client.idempotent_producer(ProducerIdentity(settings.producer_id, settings.producer_epoch))
            beginning.wait()
            for task in tasks:
                assigned = msgspec.msgpack.decode(task, type=list[list[PartitionAssignment]])
                writers = [
                    PartitionWriter(
                        client,
                        producer,
                        storage,
                        assignment,
                        AlwaysMine(),
                        topic_id=settings.topic_ids[assignment.topic],
                        on_sent=lambda size_bytes: None,
                        patience_s=30,
                    )
                    for assignment in chain.from_iterable(assigned)
                ]
                write_in_lanes([deque([writer]) for writer in writers], producer)


def names(suffix: str) -> dict[str, str]:
    return {"orders": f"orders-{suffix}", "payments": f"payments-{suffix}"}


def assert_equal(client: KafkaClient, suffix: str) -> None:
    for source, target in names(suffix).items():
        expected = without_offsets(all_records(client, source, 0))
        assert len(expected) == RECORDS
        assert without_offsets(all_records(client, target, 0)) == expected


@pytest.mark.parametrize("preserve_offsets", [False, True])
def test_attempts_that_write_at_the_same_time_are_kept_apart_by_their_sequences(
    restores: Restores, client: KafkaClient, *, preserve_offsets: bool
) -> None:
    suffix = f"thrice-{preserve_offsets}"

    restores.run_in_process(
        WritesEverythingThreeTimesAtOnce, topic_mapping=names(suffix), preserve_offsets=preserve_offsets
    )

    assert_equal(client, suffix)


def test_stopped_restore_goes_on_with_its_own_plan(restores: Restores, client: KafkaClient) -> None:
    with pytest.raises(QuorateError, match="the power went out"):
        restores.run_in_process(StopsBeforeWriting, topic_mapping=names("resumed"))

    report = restores.run_in_process(topic_mapping=names("resumed"))

    assert (report.is_resumed, report.written_records) == (True, 2 * RECORDS)
    assert_equal(client, "resumed")


@pytest.mark.parametrize(("suffix", "other"), [("begun", StopsBeforeWriting), ("finished", InThisProcess)])
def test_restore_follows_the_plan_of_a_command_that_was_faster(
    restores: Restores, client: KafkaClient, suffix: str, other: Callable[[], SparkDriver]
) -> None:
    overtakes: list[RestoreReport] = []

    def overtake() -> None:
        with suppress(QuorateError):
            overtakes.append(restores.run_in_process(other, topic_mapping=names(suffix)))

    report = restores.run_in_process(lambda: EventBefore(SurveyTask, overtake), topic_mapping=names(suffix))

    assert report.is_resumed
    assert report.restore_id is not None
    assert report.restore_id.endswith("-1")
    assert [each.restore_id for each in overtakes] == ([report.restore_id] if suffix == "finished" else [])
    assert report.written_records == (0 if overtakes else 2 * RECORDS)
    assert_equal(client, suffix)


def test_restore_that_stops_when_all_is_written_can_be_finished_whatever_is_done_to_its_topics(
    restores: Restores, client: KafkaClient, node: QuorateNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(target: RestoreTarget, topic: TargetTopic, plan: RestorePlan) -> None:
        finish(target, topic, plan)
        raise QuorateError("the power went out")

    finish = RestoreTarget.finish
    monkeypatch.setattr(RestoreTarget, "finish", stop)
    with pytest.raises(QuorateError, match="the power went out"):
        restores.run_in_process(topic_mapping=names("used"))
    monkeypatch.undo()
    client.topics.delete_records({TopicPartition(TopicName("orders-used"), PartitionIndex(0)): Offset(RECORDS)})
    produce(node.bootstrap, "payments-used", 1)

    report = restores.run_in_process(topic_mapping=names("used"))

    assert (report.is_resumed, report.written_records) == (True, 0)
    assert restores.run_in_process(topic_mapping=names("used-again")).written_records == 2 * RECORDS


def test_command_that_was_overtaken_does_nothing_once_the_other_is_done(
    restores: Restores, client: KafkaClient, node: QuorateNode
) -> None:
    def overtake() -> None:
        restores.run_in_process(topic_mapping=names("in-use"))
        produce(node.bootstrap, "orders-in-use", 1)
        client.configs.alter_topic(TopicName("orders-in-use"), values={"retention.ms": "77"})

    report = restores.run_in_process(lambda: EventBefore(SurveyTask, overtake), topic_mapping=names("in-use"))

    assert (report.is_resumed, report.written_records) == (True, 0)
    assert topic_configs(client, "orders-in-use")["retention.ms"] == "77"


def test_restore_whose_topics_were_all_deleted_starts_over(restores: Restores, client: KafkaClient) -> None:
    with pytest.raises(QuorateError):
        restores.run_in_process(StopsBeforeWriting, topic_mapping=names("anew"))
    client.topics.delete(names("anew").values())

    report = restores.run_in_process(topic_mapping=names("anew"))

    assert not report.is_resumed
    assert report.restore_id is not None
    assert report.restore_id.endswith("-2")
    assert_equal(client, "anew")


def test_restore_of_which_one_topic_was_deleted_says_what_to_do(restores: Restores, client: KafkaClient) -> None:
    with pytest.raises(QuorateError):
        restores.run_in_process(StopsBeforeWriting, topic_mapping=names("half"))
    client.topics.delete(["orders-half"])

    with pytest.raises(QuorateError, match=r"orders-half of the unfinished restore .* delete payments-half"):
        restores.run_in_process(topic_mapping=names("half"))


def test_batches_fit_into_a_topic_that_is_there_with_limits_of_its_own(
    restores: Restores, client: KafkaClient, node: QuorateNode
) -> None:
    limits = {"max.message.bytes": "1500"}
    create_topics(node.bootstrap, *(NewTopic(name, 1, config=limits) for name in names("narrow").values()))

    restores.run_in_process(topic_mapping=names("narrow"))

    assert_equal(client, "narrow")


def test_foreign_record_in_a_target_topic_ends_the_restore(
    restores: Restores, client: KafkaClient, node: QuorateNode
) -> None:
    with pytest.raises(QuorateError):
        restores.run_in_process(StopsBeforeWriting, topic_mapping=names("mixed"))
    produce(node.bootstrap, "orders-mixed", 1)

    with pytest.raises(QuorateError, match="orders-mixed-0 is not as this restore left it"):
        restores.run_in_process(topic_mapping=names("mixed"), deadline_ms=1000)
