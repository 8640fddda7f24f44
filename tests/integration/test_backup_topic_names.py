"""Topics with every legal name are backed up and restored, and one that cannot be stored costs only itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.kernel.ids import TopicName
from tests.backup_commands import Backups, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of
from tests.spark_session import InThisProcess, run_in_process

LONGEST = "t" * 249
LONGEST_BUT_ITS_END = "t" * 248 + "u"
TOPICS = ["orders", "Orders", "s" * 219, LONGEST, LONGEST_BUT_ITS_END]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, *(NewTopic(topic, 1) for topic in TOPICS))
        for number, topic in enumerate(TOPICS):
            produce(node.bootstrap, topic, 10 + number)
        yield node


def test_a_topic_name_over_218_characters_is_backed_up_and_restored(node: QuorateNode, tmp_path: Path) -> None:
    """Seen once: "File name too long", after everything was copied."""
    backups = Backups(tmp_path, node.bootstrap)

    report = run_in_process(backups, backups.write_config(topics={"include": TOPICS}), InThisProcess)

    assert report is not None
    assert (report.state, report.topics) == ("complete", len(TOPICS))
    target = "r" * 249
    Restores(backups, node.bootstrap).run_in_process(topics={"include": [LONGEST]}, topic_mapping={LONGEST: target})
    with client_of(node.bootstrap) as client:
        assert all_records(client, target, 0) == all_records(client, LONGEST, 0) != []


def test_one_topics_failure_never_costs_the_others_their_commit(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    with client_of(node.bootstrap) as client:
        topic_id = client.cluster.metadata(["orders"]).topics[TopicName("orders")].topic_id
    blocked = tmp_path / "storage" / "nightly" / "topics" / f"orders~{topic_id}"
    blocked.parent.mkdir(parents=True)
    blocked.write_bytes(b"a file in the place of the topic's folder")

    report = run_in_process(backups, backups.write_config(topics={"include": TOPICS}), InThisProcess)

    assert report is not None
    assert report.state == "partial"
    (failure,) = report.failures
    assert (failure.topic, failure.partition) == ("orders", 0)
    assert "is not a folder" in failure.message
    manifest = backups.manifest()
    for number, topic in enumerate(TOPICS):
        assert len(backups.records(topic, 0)) == (0 if topic == "orders" else 10 + number)
    assert manifest.failures == report.failures

    blocked.unlink()
    again = run_in_process(
        backups,
        backups.write_config(topics={"include": TOPICS}, backup={"mode": "incremental"}),
        InThisProcess,
    )
    assert again is not None
    assert again.state == "complete"
    assert len(backups.records("orders", 0)) == 10
