"""Kafka Streams: a word count with a state store, a repartition topic and a changelog, while a broker is killed."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.compat.clients.confluent import ConfluentClient
from tests.ecosystem.programs import FOLDER, KAFKA_VERSION, start_java, write_properties
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess
from tests.peers.quorate_cluster import QuorateCluster

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
STREAMS = ("Kafka Streams", KAFKA_VERSION)
PROGRAM = str(FOLDER / "java" / "WordCount.java")
PARTITIONS = 3
LINES = 600
# Generous: it only keeps a broken broker from hanging the tests.
DEADLINE_S = 150

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("ecosystem_jars"), pytest.mark.timeout(3 * DEADLINE_S)]


class Cluster(Protocol):
    @property
    def bootstrap(self) -> str: ...


class WordCount:
    """One application: its topics on the cluster, and its process."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        name: str,
        guarantee: str = "at_least_once",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``settings`` are the application's alone; what is written and read beside it needs none."""
        self._settings = settings or {}
        self._cluster = cluster
        self._folder = folder
        self.name = name
        self._guarantee = guarantee
        self.source, self.target = f"{name}-lines", f"{name}-totals"
        for topic in (self.source, self.target):
            ConfluentClient(cluster.bootstrap).create_topic(topic, PARTITIONS)
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[ChildProcess]:
        """The process; each start has an empty state folder, and must restore its state from the changelog."""
        self._starts += 1
        state = self._folder / f"state-{self._starts}"
        arguments = (self._cluster.bootstrap, self.name, str(state), self._guarantee, self.source, self.target)
        further = [write_properties(self._folder / "further.properties", self._settings)] if self._settings else []
        process = start_java(PROGRAM, *arguments, *further, log=self._folder / f"streams-{self._starts}.log")
        try:
            yield process
        finally:
            process.kill()

    def write(self, start: int, stop: int) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "enable.idempotence": True})
        for number in range(start, stop):
            producer.produce(self.source, line(number), str(number))
        assert producer.flush(DEADLINE_S) == 0

    def wait_for_totals(self, process: ChildProcess, stop: int) -> None:
        expected = Counter(word for number in range(stop) for word in line(number).split())
        seen: dict[str, int] = {}
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": f"{self.name}-reader-{stop}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([self.target])

        def totals_are_right() -> bool:
            assert process.running, process.output()[-6000:]
            for message in consumer.consume(500, timeout=0.2):
                assert message.error() is None, message.error()
                seen[(message.key() or b"").decode()] = int(message.value() or 0)
            assert all(count <= expected[word] for word, count in seen.items()), f"too many of {seen}"
            return seen == expected

        try:
            eventually(totals_are_right, f"the totals of {stop} lines", DEADLINE_S)
        finally:
            consumer.close()


def line(number: int) -> str:
    return f"all {'even' if number % 2 == 0 else 'odd'} mod-{number % 17}"


@pytest.mark.proves(*STREAMS, "word count: repartition topic, state store, changelog; exact after a broker's kill -9")
def test_totals_are_right_after_a_broker_was_killed(cluster: QuorateCluster, tmp_path: Path) -> None:
    count_words_while_a_broker_dies(cluster, WordCount(cluster, tmp_path, "count"), check_internal_topics=True)


@pytest.mark.proves(*STREAMS, "exactly_once_v2: plain counts are exact after a broker's kill -9")
def test_plain_counts_are_exact_with_transactions(cluster: QuorateCluster, tmp_path: Path) -> None:
    words = WordCount(cluster, tmp_path, "exact", "exactly_once_v2")
    count_words_while_a_broker_dies(cluster, words)


@pytest.mark.heavy
@pytest.mark.skipif(not IS_HEAVY, reason="set QUORATE_HEAVY=1")
@pytest.mark.proves(*STREAMS, "state restored from the changelog after the application's kill -9")
def test_state_comes_back_from_the_changelog(cluster: QuorateCluster, tmp_path: Path) -> None:
    words = WordCount(cluster, tmp_path, "restored")
    words.write(0, LINES // 2)
    with words.running() as process:
        words.wait_for_totals(process, LINES // 2)
    words.write(LINES // 2, LINES)
    with words.running() as process:
        words.wait_for_totals(process, LINES)


def count_words_while_a_broker_dies(
    cluster: QuorateCluster, words: WordCount, *, check_internal_topics: bool = False
) -> None:
    words.write(0, LINES // 2)
    with words.running() as process:
        words.wait_for_totals(process, LINES // 2)
        victim = leader_of_one(cluster, f"{words.name}-words-repartition")
        words.write(LINES // 2, LINES - 50)
        cluster.kill([victim])
        try:
            words.write(LINES - 50, LINES)
            words.wait_for_totals(process, LINES)
            if check_internal_topics:
                assert config(cluster, f"{words.name}-counts-changelog", "cleanup.policy") == "compact"
                assert config(cluster, f"{words.name}-words-repartition", "cleanup.policy") == "delete"
        finally:
            cluster.restart([victim])


def leader_of_one(cluster: Cluster, topic: str) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic).topics
    return int(topics[topic].partitions[0].leader)


def config(cluster: QuorateCluster, topic: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return str(described.result(DEADLINE_S)[name].value)
