"""``quorate up --secure``: stock clients connect by what it writes, others do not, and it stays so."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer

from tests.eventually import eventually
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.peers.secured_node import Authority
from tests.peers.secured_up import SecuredUp

VALUES = [b"value %d" % number for number in range(50)]
ALICES = "alice's own password"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredUp]:
    with SecuredUp(tmp_path_factory.mktemp("secured") / "cluster") as running:
        yield running


def write(settings: dict[str, Any], topic: str) -> None:
    """Raises the first error."""
    producer = Producer(settings)
    errors: list[KafkaError | None] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    for error in errors:
        if error is not None:
            raise KafkaException(error)


def read(settings: dict[str, Any], topic: str) -> list[bytes | None]:
    """As a group that is called as the topic is. Raises the first error."""
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    try:
        while len(found) < len(VALUES):
            message = consumer.poll(30)
            assert message is not None, "no record within 30 s"
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message.value())
    finally:
        consumer.close()
    return found


def tells(settings: dict[str, Any], code: int) -> bool:
    """Whether librdkafka tells its user of such an error."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})

    def told() -> bool:
        producer.poll(0.1)
        return any(error.code() == code for error in errors)

    return eventually(told, f"the error {code} of the connection")


def make_user(cluster: SecuredUp, name: str, password: str) -> None:
    change = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
    )
    admin = AdminClient(cluster.librdkafka())
    admin.alter_user_scram_credentials([change])[name].result(30)


def allow(cluster: SecuredUp, name: str, topic: str) -> None:
    acls = [
        AclBinding(
            kind,
            topic,
            ResourcePatternType.PREFIXED,
            f"User:{name}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    admin = AdminClient(cluster.librdkafka())
    for future in admin.create_acls(acls).values():
        future.result(30)


def test_librdkafka_writes_and_reads_by_what_the_files_say(cluster: SecuredUp) -> None:
    write(cluster.librdkafka(), "librdkafka")

    assert read(cluster.librdkafka(), "librdkafka") == VALUES


def test_kafka_python_writes_and_reads_by_what_the_files_say(cluster: SecuredUp) -> None:
    producer = KafkaProducer(**cluster.kafka_python())
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        **cluster.kafka_python(),
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


@pytest.mark.parametrize("change", [{"sasl.password": "wrong"}, {"sasl.username": "nobody"}], ids=["password", "name"])
def test_a_login_that_is_wrong_is_refused(cluster: SecuredUp, change: dict[str, Any]) -> None:
    assert tells(cluster.librdkafka() | change, KafkaError._AUTHENTICATION)


def test_a_client_without_tls_hears_nothing(cluster: SecuredUp) -> None:
    plain: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "socket.timeout.ms": 2000}
    with pytest.raises(KafkaException):
        AdminClient(plain).list_topics(timeout=3)
    host, _, port = cluster.bootstrap.split(",")[0].partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as stranger:
        # ApiVersions 0, which everybody may ask where there is no TLS.
        stranger.sendall(bytes.fromhex("0000000e 0012 0000 00000001 0004 74657374"))
        answer = stranger.recv(1000)
    assert b"\x00\x12" not in answer[5:]
    assert answer[:1] in (b"", b"\x15")  # Nothing, or an alert of TLS.


def test_nodes_talk_to_nobody_who_shows_no_certificate(cluster: SecuredUp) -> None:
    context = ssl.create_default_context(cafile=cluster.ca_file)
    context.check_hostname = False
    for node in nodes(cluster):
        host, _, port = node["peer"].partition(":")
        with (
            socket.create_connection((host, int(port)), timeout=30) as plain,
            context.wrap_socket(plain) as stranger,
        ):
            assert ("URI", f"quorate:node:{node['id']}") in stranger.getpeercert()["subjectAltName"]  # type: ignore[index]
            with pytest.raises(ssl.SSLError, match=r"(?i)certificate required"):
                stranger.recv(1)


def test_a_client_that_trusts_another_authority_does_not_connect(cluster: SecuredUp, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    assert tells(cluster.librdkafka() | {"ssl.ca.location": str(other.certificate)}, KafkaError._SSL)


def test_another_user_may_do_what_acls_allow_and_nothing_else(cluster: SecuredUp) -> None:
    make_user(cluster, "alice", ALICES)
    alice = cluster.librdkafka("alice", ALICES)
    write(cluster.librdkafka(), "alices")

    with pytest.raises(KafkaException) as raised:
        write(alice | {"message.timeout.ms": 5000}, "alices")
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    allow(cluster, "alice", "alices")
    admin = AdminClient(alice)
    eventually(lambda: admin.list_topics(timeout=10).topics, "the ACL on the node that is asked")
    assert set(admin.list_topics(timeout=10).topics) == {"alices"}
    write(alice, "alices")


def test_commands_work_by_the_file(cluster: SecuredUp, tmp_path: Path) -> None:
    status = cluster.command("cluster", "status")
    assert (status.returncode, status.stdout.splitlines()[-1]) == (0, "healthy")
    assert cluster.command("topics", "create", "made-by-a-command").returncode == 0
    assert "made-by-a-command" in cluster.command("topics", "list").stdout
    doctor = cluster.command("cluster", "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr

    wrong = cluster.properties_of(tmp_path / "wrong.properties", "admin", "hidden")
    refused = cluster.command("cluster", "status", properties=wrong)
    assert refused.returncode == 1
    assert "hidden" not in refused.stdout + refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.peer
def test_apache_kafkas_tools_work_by_the_file(cluster: SecuredUp, tool_shell: ToolShell, tmp_path: Path) -> None:
    def run(tool: str, *arguments: str, properties: Path = cluster.properties) -> str:
        config = ("--command-config", str(properties))
        return tool_shell.run(tool, "--bootstrap-server", cluster.bootstrap, *config, *arguments)

    run("kafka-topics", "--create", "--topic", "java", "--partitions", "3")
    credential = f"SCRAM-SHA-512=[password={ALICES}]"
    run("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "jane", "--add-config", credential)
    jane = cluster.properties_of(tmp_path / "jane.properties", "jane", ALICES)
    eventually(lambda: run("kafka-topics", "--list", properties=jane) == "\n", "the user on all nodes")
    run("kafka-acls", "--add", "--allow-principal", "User:jane", "--operation", "Describe", "--topic", "java")
    eventually(lambda: run("kafka-topics", "--list", properties=jane) == "java\n", "the ACL on all nodes")
    with pytest.raises(ToolError, match="Topic authorization failed"):
        run("kafka-topics", "--delete", "--topic", "java", properties=jane)
    with pytest.raises(ToolError, match="uthentication"):
        run("kafka-topics", "--list", properties=cluster.properties_of(tmp_path / "wrong", "jane", "wrong"))


def test_nothing_that_it_keeps_or_says_has_a_password(cluster: SecuredUp) -> None:
    make_user(cluster, "bob", "the password of bob")
    admin = AdminClient(cluster.librdkafka())
    resources = [ConfigResource(ConfigResource.Type.BROKER, str(node["id"])) for node in nodes(cluster)]
    described = [
        f"{entry.name}={entry.value}"
        for resource in resources
        for future in admin.describe_configs([resource]).values()
        for entry in future.result(30).values()
    ]
    assert "super.users=User:admin" in described
    said = cluster.output_path.read_text() + (cluster.folder / "cluster.json").read_text() + "\n".join(described)
    said += "".join(command_line(pid) for pid in [cluster.process.pid, *(node["pid"] for node in nodes(cluster))])
    key = (cluster.folder / "ca.key").read_text().splitlines()[1]
    for secret in (cluster.password, "the password of bob", key):
        assert secret not in said
        holding = {path.name for path in cluster.folder.rglob("*") if path.is_file() and contains(path, secret)}
        assert holding <= {"admin.password", "client.properties", "ca.key"}


def nodes(cluster: SecuredUp) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.described["nodes"]
    return found


def command_line(pid: int) -> str:
    process = Path(f"/proc/{pid}")
    return "".join((process / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ"))


def contains(path: Path, secret: str) -> bool:
    return secret.encode() in path.read_bytes()


def test_every_file_is_its_owners_alone(cluster: SecuredUp) -> None:
    paths = [cluster.folder, *cluster.folder.rglob("*")]
    assert {str(path): oct(path.stat().st_mode) for path in paths if path.stat().st_mode & 0o077} == {}
