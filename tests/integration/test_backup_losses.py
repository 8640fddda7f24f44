"""Records that a run came too late for: its report, its exit status and the list of backups say so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from quorate.cli.backup import LOSSES_STATUS
from tests.backup_commands import Backups, create_topics, interrupt, produce
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import InThisProcess, run_in_process

INCREMENTAL = {"mode": "incremental"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


def test_a_run_that_finds_a_gap_ends_with_the_status_for_losses(node: QuorateNode, backups: Backups) -> None:
    """Nothing is left to copy, so that no Spark is started."""
    create_topics(node.bootstrap, NewTopic("gaps", 1))
    produce(node.bootstrap, "gaps", 10)
    topics = {"include": ["gaps"]}
    run_in_process(backups, backups.write_config(topics=topics, backup=INCREMENTAL), InThisProcess)
    produce(node.bootstrap, "gaps", 5)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_records([TopicPartition("gaps", 0, 15)])[TopicPartition("gaps", 0)].result()

    done = backups.backup(topics=topics, backup=INCREMENTAL)
    after = backups.backup("--format", "json", topics=topics, backup=INCREMENTAL)

    assert done.status == LOSSES_STATUS == 3, done
    assert "gap: gaps-0 offsets 10 to 14 (retention)" in done.output
    assert "1 gap, 0 recreated topics" in done.output
    assert (after.status, after.json["gaps"], after.json["state"]) == (0, [], "complete"), "it is told once"
    assert backups.list_backups("--format", "json").json[0]["gaps"] == 1
    assert "gap: gaps-0 offsets 10 to 14" in backups.list_backups("--backup-id", "nightly").output


@pytest.mark.parametrize("mode", ["incremental", "snapshot"])
def test_a_run_that_finds_a_topic_made_again_ends_with_the_status_for_losses(
    node: QuorateNode, backups: Backups, mode: str
) -> None:
    topic = f"again-{mode}"
    create_topics(node.bootstrap, NewTopic(topic, 1))
    produce(node.bootstrap, topic, 10)
    topics, settings = {"include": [topic]}, {"mode": mode}
    run_in_process(backups, backups.write_config(topics=topics, backup=settings), InThisProcess)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics([topic])[topic].result()
    create_topics(node.bootstrap, NewTopic(topic, 1))

    done = backups.backup(topics=topics, backup=settings)
    after = backups.backup("--format", "json", topics=topics, backup=settings)

    assert done.status == LOSSES_STATUS, done
    assert f"recreated: {topic} was deleted and made again (life 2)" in done.output
    assert "0 gaps, 1 recreated topic" in done.output
    assert (after.status, after.json["recreated"]) == (0, [])
    assert backups.list_backups("--format", "json").json[0]["recreated"] == [topic]
    assert f"recreated: {topic} is in its life 2" in backups.list_backups("--backup-id", "nightly").output


def test_a_failure_is_more_than_a_loss(node: QuorateNode, backups: Backups) -> None:
    create_topics(node.bootstrap, NewTopic("both", 1))
    produce(node.bootstrap, "both", 10)
    config = backups.write_config(topics={"include": ["both"]}, backup=INCREMENTAL)
    run_in_process(backups, config, InThisProcess)
    produce(node.bootstrap, "both", 5)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_records([TopicPartition("both", 0, 15)])[TopicPartition("both", 0)].result()

    done = backups.backup(topics={"include": ["both", "no-such-topic"]}, backup=INCREMENTAL)

    assert done.status == 1, done
    assert "1 gap, 0 recreated topics, 0 truncations, 1 failure" in done.output


def test_a_continuous_backup_that_is_stopped_tells_the_losses_of_its_rounds(
    node: QuorateNode, backups: Backups
) -> None:
    create_topics(node.bootstrap, NewTopic("rounds", 1))
    produce(node.bootstrap, "rounds", 10)
    topics = {"include": ["rounds"]}
    config = backups.write_config(topics=topics, backup={"mode": "continuous"})
    run_in_process(backups, config, InThisProcess)
    produce(node.bootstrap, "rounds", 5)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_records([TopicPartition("rounds", 0, 15)])[TopicPartition("rounds", 0)].result()

    running = backups.start_backup(topics=topics, backup={"mode": "continuous"})
    assert running.stdout is not None
    lines = iter(running.stdout.readline, "")
    assert any("1 gap," in line for line in lines)

    assert interrupt(running).status == LOSSES_STATUS
