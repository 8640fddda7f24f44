"""Streams, Connect and Spark's connector over SASL_SSL, each as a user with the rights that its documentation asks for.

With ``--target apache-kafka`` they run on Apache Kafka with its authorizer.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.clients.confluent import ConfluentClient
from tests.ecosystem.connect_worker import ConnectWorker
from tests.ecosystem.programs import KAFKA_VERSION
from tests.ecosystem.test_connect import append_lines, wait_until_copied
from tests.ecosystem.test_spark import SPARK, check_batch, check_stream, run_queries
from tests.ecosystem.test_streams import DEADLINE_S, LINES, STREAMS, WordCount, leader_of_one
from tests.eventually import eventually
from tests.peers.authorized_kafka import AuthorizedKafka
from tests.peers.secured_cluster import SecuredCluster
from tests.peers.secured_users import (
    Right,
    add_users,
    allow,
    client_properties,
    group,
    groups_from,
    take_away,
    topic,
    topics_from,
    transactional_ids_from,
)

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
IDS = (7, 100, 4001)

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("ecosystem_jars"), pytest.mark.timeout(4 * DEADLINE_S)]

Secured = AuthorizedKafka | SecuredCluster


@pytest.fixture(scope="module")
def secured(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    is_quorate = request.config.getoption("--target") == "quorate"
    with SecuredCluster(folder, IDS) if is_quorate else AuthorizedKafka.launch(folder, IDS) as running:
        yield running


def rights_of_streams(name: str) -> dict[str, Right]:
    """What Apache Kafka's page on the security of Streams asks for, and what transactions need."""
    return {
        "source": topic(f"{name}-lines", "Read"),
        "target": topic(f"{name}-totals", "Write"),
        "internal topics": topics_from(f"{name}-words-", "All"),
        "changelogs": topics_from(f"{name}-counts-", "All"),
        "group": groups_from(name, "All"),
        "transactional ids": transactional_ids_from(name, "Write"),
    }


def words_of(secured: Secured, folder: Path, user: str) -> WordCount:
    settings = {"bootstrap.servers": secured.secured} | client_properties(secured, user)
    return WordCount(secured, folder, user, "exactly_once_v2", settings)


@pytest.mark.proves(*STREAMS, "exactly_once_v2 over SASL_SSL with least rights: exact after a broker's kill -9")
def test_streams_count_exactly_with_least_rights_until_one_is_taken_away(secured: Secured, tmp_path: Path) -> None:
    rights = rights_of_streams("counting")
    add_users(secured, {"counting": rights.values()})
    words = words_of(secured, tmp_path, "counting")
    words.write(0, LINES // 2)
    with words.running() as process:
        words.wait_for_totals(process, LINES // 2)
        victim = secured.nodes[leader_of_one(secured, "counting-words-repartition")]
        words.write(LINES // 2, LINES - 50)
        victim.kill()
        try:
            words.write(LINES - 50, LINES)
            words.wait_for_totals(process, LINES)
        finally:
            victim.restart()

        take_away(secured, "counting", rights["transactional ids"])
        words.write(LINES, LINES + 10)
        eventually(lambda: not process.running, "the end of the application", DEADLINE_S)
        assert "TransactionalIdAuthorizationException" in process.output()


@pytest.mark.heavy
@pytest.mark.skipif(not IS_HEAVY, reason="set QUORATE_HEAVY=1")
@pytest.mark.parametrize(
    ("missing", "error"),
    [
        ("source", "TopicAuthorizationException"),
        ("target", "TopicAuthorizationException"),
        ("internal topics", "TopicAuthorizationException"),
        ("changelogs", "TopicAuthorizationException"),
        ("group", "GroupAuthorizationException"),
        ("transactional ids", "TransactionalIdAuthorizationException"),
    ],
)
def test_streams_end_where_one_right_is_missing(secured: Secured, tmp_path: Path, missing: str, error: str) -> None:
    user = f"without-{missing.replace(' ', '-')}"
    rights = rights_of_streams(user)
    del rights[missing]
    add_users(secured, {user: rights.values()})
    words = words_of(secured, tmp_path, user)
    words.write(0, 10)
    with words.running() as process:
        eventually(lambda: not process.running, "the end of the application", DEADLINE_S)
        assert error in process.output()


#: The worker's group and topics, what its connectors write and read, and the group of the sink.
RIGHTS_OF_CONNECT = [
    group("linking", "Read"),
    *(topic(f"linking-{kind}", "Create", "Read", "Write") for kind in ("config", "offset", "status")),
    topic("linked", "Read", "Write"),
    group("connect-to-file", "Read"),
]


@pytest.mark.proves(
    "Kafka Connect", KAFKA_VERSION, "distributed mode over SASL_SSL with least rights, and with one less"
)
def test_connect_copies_with_least_rights_and_tells_which_one_is_missing(secured: Secured, tmp_path: Path) -> None:
    add_users(secured, {"linking": RIGHTS_OF_CONNECT})
    for name in ("linked", "of-others"):
        ConfluentClient(secured.bootstrap).create_topic(name)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    append_lines(source, 0, 500)
    file_stream = "org.apache.kafka.connect.file.FileStream"
    worker = ConnectWorker(tmp_path, secured.secured, "linking", client_properties(secured, "linking"))
    worker.start()
    try:
        sink = {"connector_class": f"{file_stream}SinkConnector", "file": str(target), "topics": "linked"}
        from_file = {"connector_class": f"{file_stream}SourceConnector", "file": str(source)}
        worker.create("from-file", **from_file, topic="linked")
        worker.create("to-file", **sink)
        wait_until_copied(worker, source, target)

        worker.create("unknown-group", **sink | {"file": str(tmp_path / "nothing.txt")})
        worker.create("unknown-topic", **from_file, topic="of-others")
        for name, error in (("unknown-group", "GroupAuthorization"), ("unknown-topic", "TopicAuthorization")):
            failure = eventually(lambda name=name: worker.failure(name), f"{name} to fail", DEADLINE_S)  # type: ignore[misc]
            assert f"{error}Exception" in failure
        worker.wait_until_running("from-file", "to-file")
    finally:
        worker.kill()


@pytest.mark.heavy
@pytest.mark.skipif(not IS_HEAVY, reason="set QUORATE_HEAVY=1")
@pytest.mark.parametrize("missing", [RIGHTS_OF_CONNECT[0], RIGHTS_OF_CONNECT[1]], ids=["group", "internal topic"])
def test_a_worker_that_lacks_a_right_does_not_start(secured: Secured, tmp_path: Path, missing: Right) -> None:
    add_users(secured, {"linking": RIGHTS_OF_CONNECT})
    take_away(secured, "linking", missing)
    worker = ConnectWorker(tmp_path, secured.secured, "linking", client_properties(secured, "linking"))
    worker.start()
    try:
        eventually(lambda: "AuthorizationException" in worker.output(), "the worker to tell of it", DEADLINE_S)
    finally:
        worker.kill()
        allow(secured, "linking", missing)


@pytest.mark.heavy
@pytest.mark.skipif(not IS_HEAVY, reason="set QUORATE_HEAVY=1")
@pytest.mark.proves(*SPARK, "batch and Structured Streaming over SASL_SSL with least rights")
def test_sparks_connector_reads_and_writes_with_least_rights(secured: Secured, tmp_path: Path) -> None:
    topics = [f"secured-{name}" for name in ("batch", "source", "target")]
    rights = [topic(name, "Read", "Write") for name in topics] + [groups_from("spark-kafka-", "Read")]
    add_users(secured, {"spark": rights})
    results = run_queries(
        secured.bootstrap,
        topics,
        tmp_path,
        {"bootstrap.servers": secured.secured} | client_properties(secured, "spark"),
    )
    check_batch(results)
    check_stream(results)
