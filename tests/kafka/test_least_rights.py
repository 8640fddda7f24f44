"""Backups and restores of secured clusters, by users who may do no more than docs/security.md says."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import TopicName
from tests.backup_commands import BACKUP_ID, Backups, Finished, consume, produce, run_quorate
from tests.peers.authorized_kafka import AuthorizedKafka
from tests.peers.secured_cluster import SecuredCluster
from tests.peers.secured_users import (
    ClusterWithUsers,
    Right,
    add_users,
    allow,
    client_properties,
    group,
    password_of,
    the_cluster,
    topic,
    topics_from,
)
from tests.restore_commands import client_of
from tests.table_rows import consumed_rows, read_rows

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

RECORDS = 200
TOPIC, GROUP = "orders", "billing"
RESTORED = "restored-orders"
#: What the documentation names, by user.
RIGHTS: dict[str, list[Right]] = {
    "backup": [topic("*", "Read", "DescribeConfigs"), group("*", "Describe")],
    "restore": [
        topics_from("restored-", "Create", "Read", "Write", "DescribeConfigs", "AlterConfigs"),
        group("*", "Read"),
        the_cluster("DescribeConfigs"),
    ],
    "watcher": [topic("*", "Describe", "DescribeConfigs"), the_cluster("Describe")],
    "nobody": [],
}


@pytest.fixture(scope="module", params=["apache-kafka", "quorate"])
def cluster(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterWithUsers]:
    folder = tmp_path_factory.mktemp("cluster")
    starting = AuthorizedKafka.launch(folder) if request.param == "apache-kafka" else SecuredCluster(folder)
    with starting as running:
        add_users(running, RIGHTS)
        with client_of(running.bootstrap) as administrator:
            fill(running, administrator)
        yield running


def fill(cluster: ClusterWithUsers, administrator: KafkaClient) -> None:
    """Records, and a group in the middle of them."""
    administrator.topics.create([NewTopic(name=TopicName(TOPIC), partitions=1, configs={"retention.ms": "-1"})])
    produce(cluster.bootstrap, TOPIC, RECORDS)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS // 2)], asynchronous=False)
    consumer.close()


def properties_of(cluster: ClusterWithUsers, folder: Path, name: str) -> Path:
    """The password stands in a file of its own."""
    secret = folder / f"{name}.password"
    secret.write_text(password_of(name) + "\n")
    properties = {"bootstrap.servers": cluster.secured} | client_properties(cluster, name, f"${{file:{secret}}}")
    path = folder / f"{name}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def logged(folder: Path) -> dict[str, str]:
    """Spark's own settings, for a log of its events that can be read."""
    return {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": str(folder)}


def back_up(cluster: ClusterWithUsers, folder: Path, name: str) -> Finished:
    config = Backups(folder, "").write_config(
        source={"topics": {"include": [TOPIC]}},
        backup={"deadline_ms": 20_000},
        spark={"master": "local[2]", "conf": logged(folder)},
    )
    return run_quorate("backup", "--config", str(config), "--command-config", str(properties_of(cluster, folder, name)))


def restore(cluster: ClusterWithUsers, folder: Path, name: str, **target: object) -> Finished:
    path = folder / "restore.yaml"
    config = {
        "backup_id": BACKUP_ID,
        "target": target,
        "storage": {"url": f"file://{folder}/storage"},
        "restore": {"topic_mapping": {TOPIC: RESTORED}, "consumer_groups": {"include": [GROUP]}},
        "spark": {"master": "local[2]", "conf": logged(folder)},
    }
    path.write_text(yaml.safe_dump(config))
    return run_quorate(
        "restore", "--config", str(path), "--command-config", str(properties_of(cluster, folder, name)), timeout_s=120
    )


def test_a_backup_and_a_restore_need_no_more_rights_than_are_said(cluster: ClusterWithUsers, tmp_path: Path) -> None:
    backed_up = back_up(cluster, tmp_path, "backup")
    assert backed_up.status == 0, backed_up
    assert Backups(tmp_path, "").records(TOPIC, 0) == consume(cluster.bootstrap, TOPIC, 0)
    assert [each.group for each in Backups(tmp_path, "").manifest().groups] == [GROUP]

    restored = restore(cluster, tmp_path, "restore")
    assert restored.status == 0, restored
    assert [record[1:] for record in consume(cluster.bootstrap, RESTORED, 0)] == [
        record[1:] for record in consume(cluster.bootstrap, TOPIC, 0)
    ]
    by_the_same_user = [f"--config={tmp_path}/restore.yaml", f"--command-config={tmp_path}/restore.properties"]
    applied = run_quorate("offsets", "apply", *by_the_same_user)
    assert applied.status == 0, applied
    assert f"{GROUP}: {RESTORED}-0 at offset {RECORDS // 2}" in applied.output
    refused = run_quorate("offsets", "rollback", *by_the_same_user)
    assert refused.status == 1
    assert "delete offsets of group billing" in refused.errors
    allow(cluster, "restore", group("*", "Delete"))
    undone = run_quorate("offsets", "rollback", *by_the_same_user)
    assert undone.status == 0, undone
    verified = Backups(tmp_path, "").verify()
    assert verified.status == 0, verified
    assert_no_secret(tmp_path, [backed_up, restored, applied, refused, undone, verified])


def assert_no_secret(folder: Path, commands: list[Finished]) -> None:
    """Neither in what was printed, nor in anything that was written: manifests, ledgers, Spark's log of events."""
    secrets = [password_of(name).encode() for name in ("backup", "restore")]
    for done in commands:
        assert not any(secret.decode() in done.output + done.errors for secret in secrets)
    written = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".password"]
    logs = [path for path in written if "local-" in path.name]
    assert logs, "Spark wrote no log of its events"
    # What its web pages show of its settings is in there.
    assert any(b"SparkListenerEnvironmentUpdate" in path.read_bytes() for path in logs)
    for path in written:
        assert not any(secret in path.read_bytes() for secret in secrets), path


def test_who_may_nothing_is_told_so_in_one_sentence(cluster: ClusterWithUsers, tmp_path: Path) -> None:
    done = back_up(cluster, tmp_path, "nobody")

    assert done.status == 1
    assert "Traceback" not in done.errors
    assert f"quorate: topic {TOPIC} does not exist" in done.errors
    assert Backups(tmp_path, "").catalog().numbers() == []


def test_topics_and_doctor_take_the_same_file(cluster: ClusterWithUsers, tmp_path: Path) -> None:
    properties = str(properties_of(cluster, tmp_path, "backup"))
    listed = run_quorate("topics", "list", "--command-config", properties, "--format", "json")
    assert listed.status == 0, listed
    assert TOPIC in [topic["topic"] for topic in listed.json]

    examined = run_quorate("cluster", "doctor", "--command-config", properties)
    assert examined.status == 0, examined
    refused = run_quorate("cluster", "status", "--command-config", properties)
    assert refused.status == 1
    assert refused.errors.splitlines()[-1].endswith("not allow it to this user (CLUSTER_AUTHORIZATION_FAILED)"), refused
    of_watcher = str(properties_of(cluster, tmp_path, "watcher"))
    watched = run_quorate("cluster", "status", "--command-config", of_watcher)
    assert watched.status == 0, watched
    assert "healthy" in watched.output

    (tmp_path / "backup.password").write_text("wrong\n")
    refused = run_quorate("topics", "list", "--command-config", properties)
    assert refused.status == 1
    [line] = refused.errors.splitlines()
    assert line.startswith("quorate: authentication with 127.0.0.1:")


def test_the_data_source_reads_what_its_user_may_read(cluster: ClusterWithUsers) -> None:
    options = {
        "bootstrap_servers": cluster.secured,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": "backup",
        "password": password_of("backup"),
        "ca_location": str(cluster.ca),
        "topics": TOPIC,
    }
    assert read_rows(options) == consumed_rows(cluster.bootstrap, TOPIC)
    with pytest.raises(QuorateError) as refused:
        read_rows(options | {"username": "nobody", "password": password_of("nobody")})
    assert TOPIC in str(refused.value)
    with pytest.raises(QuorateError) as refused:
        read_rows(options | {"username": "nobody"})
    assert "authentication" in str(refused.value)
    assert password_of("backup") not in str(refused.value)


def test_an_export_of_the_live_cluster_shows_no_secret_either(cluster: ClusterWithUsers, tmp_path: Path) -> None:
    done = run_quorate(
        "export",
        *("--command-config", str(properties_of(cluster, tmp_path, "backup")), "--topics", TOPIC),
        *("--output", str(tmp_path / "table"), "--master", "local[2]"),
        *(word for name, value in logged(tmp_path).items() for word in ("--conf", f"{name}={value}")),
    )

    assert done.status == 0, done
    assert f"{RECORDS} records" in done.output
    assert_no_secret(tmp_path, [done])
