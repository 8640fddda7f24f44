"""The backup command through listeners of Apache Kafka that ask who is there."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.ids import TopicName
from tests.backup_commands import Backups, Finished, consume, produce, run_quorate
from tests.kafka.secured_kafka import PASSWORD, USERNAME, SecuredKafka
from tests.peers.kafka_tools import ToolShell

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

RECORDS = 100


@pytest.fixture(scope="module", autouse=True)
def _scram_credentials(kafka: SecuredKafka, tool_shell: ToolShell) -> None:
    kafka.add_scram_credentials(tool_shell)


@pytest.fixture
def topic(kafka: SecuredKafka, client: KafkaClient, name: str) -> str:
    client.topics.create([NewTopic(name=TopicName(name), partitions=1, replication_factor=3)])
    produce(kafka.bootstrap, name, RECORDS)
    return name


def back_up(
    kafka: SecuredKafka, folder: Path, topic: str, listener: str, security: Mapping[str, str], *, secret: str = ""
) -> tuple[Backups, Finished]:
    """The password is given in the environment, as users are told to do."""
    backups = Backups(folder, kafka.bootstrap)
    source = {
        "bootstrap_servers": list(kafka.listener(listener)),
        "topics": {"include": [topic]},
        "security": dict(security),
    }
    config = backups.write_config(source=source, backup={"deadline_ms": 10_000})
    environment = os.environ | {"KAFKA_PASSWORD": secret}
    return backups, run_quorate("backup", "--config", str(config), environment=environment)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-512")],
)
def test_backup_with_a_password(kafka: SecuredKafka, tmp_path: Path, topic: str, protocol: str, mechanism: str) -> None:
    security = {
        "protocol": protocol,
        "sasl_mechanism": mechanism,
        "username": USERNAME,
        "password": "${KAFKA_PASSWORD}",
    }
    if protocol == "SASL_SSL":
        security["ca_location"] = str(kafka.certificates.ca)

    backups, done = back_up(kafka, tmp_path, topic, protocol, security, secret=PASSWORD)

    assert done.status == 0, done
    assert backups.records(topic, 0) == consume(kafka.bootstrap, topic, 0)
    assert PASSWORD not in done.output + done.errors
    manifest = tmp_path / "storage" / "nightly" / "manifests" / "000001.json"
    assert PASSWORD not in manifest.read_text()


def test_backup_with_a_client_certificate(kafka: SecuredKafka, tmp_path: Path, topic: str) -> None:
    security = {
        "protocol": "SSL",
        "ca_location": str(kafka.certificates.ca),
        "certificate_location": str(kafka.certificates.client),
        "key_location": str(kafka.certificates.client_key),
    }

    backups, done = back_up(kafka, tmp_path, topic, "MTLS", security)

    assert done.status == 0, done
    assert backups.records(topic, 0) == consume(kafka.bootstrap, topic, 0)


def test_wrong_password_is_told_in_one_sentence(kafka: SecuredKafka, tmp_path: Path, topic: str) -> None:
    security = {
        "protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": USERNAME,
        "password": "${KAFKA_PASSWORD}",
    }

    backups, done = back_up(kafka, tmp_path, topic, "SASL_PLAINTEXT", security, secret="not the password")

    assert done.status == 1
    (line,) = [line for line in done.errors.splitlines() if line.startswith("quorate: ")]
    assert "authentication with 127.0.0.1:" in line
    assert "not the password" not in done.output + done.errors
    assert "Traceback" not in done.errors
    assert backups.catalog().numbers() == []
