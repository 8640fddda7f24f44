"""What users get wrong, and what may be out of order: one clear sentence, a status, and nothing written."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.errors import RequirementFailed
from quorate.backup.spark.session.job import SparkDriver
from tests.backup_commands import Backups, Finished, create_topics, produce, run_quorate
from tests.peers.child_process import free_port
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import InThisProcess, run_in_process

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic("orders", 1))
        produce(node.bootstrap, "orders", 10)
        yield node


@pytest.fixture
def backups(node: QuorateNode, tmp_path: Path) -> Backups:
    return Backups(tmp_path, node.bootstrap)


def test_unknown_config_key_is_named_with_the_nearest_one(backups: Backups) -> None:
    done = backups.backup(backup={"compresion": "zstd"})
    _assert_one_sentence(done, "compresion", "compression")
    _assert_nothing_written(backups)


def test_missing_config_file_is_named(tmp_path: Path) -> None:
    _assert_one_sentence(run_quorate("backup", "--config", str(tmp_path / "none.yaml")), "none.yaml")


def test_unreachable_cluster_is_named(tmp_path: Path) -> None:
    backups = Backups(tmp_path, f"127.0.0.1:{free_port()}")
    done = backups.backup(backup={"deadline_ms": 1000})
    _assert_one_sentence(done, "cannot connect to 127.0.0.1")
    assert backups.catalog().numbers() == []


def test_storage_that_cannot_be_written_is_named(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    (tmp_path / "storage").write_text("a file where a folder is wanted")
    _assert_one_sentence(backups.backup(), str(tmp_path / "storage"))


def test_storage_url_without_a_scheme_is_refused(node: QuorateNode, tmp_path: Path) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    done = backups.backup(storage={"url": str(tmp_path)})
    _assert_one_sentence(done, "has no scheme")


def test_without_java_the_sentence_says_what_to_install(backups: Backups) -> None:
    config = backups.write_config()
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | {"PATH": "/nonexistent"}
    done = run_quorate("backup", "--config", str(config), environment=environment)
    assert done.status == 1, done
    assert "Spark needs Java 17 or newer, and none was found: install one" in done.errors
    assert "Traceback" not in done.errors
    assert backups.catalog().numbers() == []


def test_unknown_topic_is_named_and_nothing_is_published(backups: Backups) -> None:
    done = backups.backup(topics={"include": ["no-such-topic"]})
    _assert_one_sentence(done, "topic no-such-topic does not exist", "no manifest was written")
    assert backups.catalog().numbers() == []


def test_a_pattern_that_matches_no_topic_publishes_nothing_and_no_prune_takes_what_was_there(backups: Backups) -> None:
    run_in_process(backups, backups.write_config(topics={"include": ["orders"]}), InThisProcess)
    objects = backups.object_paths()

    for _ in range(3):
        done = backups.backup(topics={"include": ["ordr*"]})
        _assert_one_sentence(done, "no topic of the cluster matches source.topics (include: ordr*)", "allow_empty")
    assert backups.catalog().numbers() == [1]

    # Whoever means it gets manifests without topics. They do not count, and the copy of the topic outlives them all.
    empty = backups.write_config(topics={"include": ["ordr*"]}, backup={"allow_empty": True})
    for _ in range(3):
        run_in_process(backups, empty, InThisProcess)
    assert backups.catalog().numbers() == [1, 2, 3, 4]
    prune = ["prune", "--storage", backups.url, "--backup-id", "nightly", "--keep-last", "2"]
    assert run_quorate(*prune).status == 0
    assert backups.object_paths() == objects
    assert 1 in backups.catalog().numbers()

    forgotten = run_quorate(*prune[:-1], "1", "--forget-topic", "orders")
    assert forgotten.status == 0, forgotten
    assert (backups.object_paths(), backups.catalog().numbers()) == (objects, [1, 2, 3, 4])
    forgotten = run_quorate(*prune[:-2], "--keep-days", "0", "--forget-topic", "orders")
    assert (backups.object_paths(), backups.catalog().numbers()) == ([], [4])


def test_second_cluster_under_the_same_backup_id_is_refused_before_anything_is_copied(
    backups: Backups, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_in_process(backups, backups.write_config(), InThisProcess)
    before = sorted(path for path in (backups.folder / "storage").rglob("*") if path.is_file())

    def no_spark() -> SparkDriver:
        raise AssertionError("something was copied")

    with QuorateNode.start(tmp_path_factory.mktemp("other"), settings={"durability": "os"}) as other:
        create_topics(other.bootstrap, NewTopic("orders", 1))
        produce(other.bootstrap, "orders", 10)
        elsewhere = Backups(backups.folder, other.bootstrap)
        for mode in ("snapshot", "incremental", "continuous"):
            with pytest.raises(
                RequirementFailed, match=r"backup nightly is of cluster \S+ and this is cluster \S+: use"
            ):
                run_in_process(elsewhere, elsewhere.write_config(backup={"mode": mode}), no_spark)
        _assert_one_sentence(elsewhere.backup(), "use another backup_id")

    assert sorted(path for path in (backups.folder / "storage").rglob("*") if path.is_file()) == before


def test_verify_of_a_backup_that_does_not_exist(backups: Backups) -> None:
    (backups.folder / "storage").mkdir()
    _assert_one_sentence(backups.verify(), "there is no backup nightly")


def test_kafka_backup_is_the_same_commands_under_another_name(backups: Backups) -> None:
    program = "import sys; sys.argv[0] = 'kafka-backup'; from quorate.cli import commands; commands.kafka_backup_main()"
    (backups.folder / "storage").mkdir()
    for command, expected in (
        (["list-backups"], "0 backups"),
        (["verify", "--backup-id", "x"], "kafka-backup: there is no"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *command, "--storage", backups.url],
            capture_output=True,
            text=True,
            check=False,
        )
        assert expected in done.stdout + done.stderr


def _assert_one_sentence(done: Finished, *parts: str) -> None:
    assert done.status == 1, done
    lines = [line for line in done.errors.splitlines() if line.startswith("quorate: ")]
    assert len(lines) == 1, done
    for part in parts:
        assert part in lines[0]
    assert "Traceback" not in done.errors


def _assert_nothing_written(backups: Backups) -> None:
    assert not (backups.folder / "storage").exists()
