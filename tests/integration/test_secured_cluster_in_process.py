"""The secured cluster for other people's tests, used as they would: with stock clients, and what each of them needs."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer

from quorate.cli.options import open_client
from quorate.kernel.errors import QuorateError
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.test_secured_up import tells

MODES = ["SASL_SSL", "SASL_PLAINTEXT", "SSL"]
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module", params=MODES)
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=3, secured=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def with_logins() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=3, secured=True) as running:
        yield running


def librdkafka(cluster: ClusterInProcess, *user: str) -> dict[str, Any]:
    return cluster.client_settings("librdkafka", *user) | {"log_level": 0}


def write(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """The error, if it was not written."""
    errors: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    return errors[0]


def test_each_client_writes_by_its_own_settings(cluster: ClusterInProcess) -> None:
    assert write(librdkafka(cluster), "clients") is None

    producer = KafkaProducer(**cluster.client_settings("kafka-python"))
    assert producer.send("clients", b"value").get(30).topic == "clients"
    producer.close()

    async def by_aiokafka() -> None:
        async with AIOKafkaProducer(**cluster.client_settings("aiokafka")) as producer:
            assert (await producer.send_and_wait("clients", b"value")).topic == "clients"

    asyncio.run(by_aiokafka())
    assert cluster.client_settings("java")["bootstrap.servers"] == cluster.bootstrap_servers


def test_commands_connect_by_its_properties(cluster: ClusterInProcess) -> None:
    with open_client(None, command_config=cluster.client_properties) as client:
        assert set(client.cluster.metadata().brokers) == {1, 2, 3}


def test_a_client_that_knows_nothing_is_not_let_in(cluster: ClusterInProcess) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}).list_topics(timeout=1)


def test_other_users_may_do_what_acls_allow(with_logins: ClusterInProcess) -> None:
    cluster = with_logins
    cluster.add_user("alice", "one, two = 'three'")
    alice = librdkafka(cluster, "alice", "one, two = 'three'")
    admin = AdminClient(librdkafka(cluster))
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    error = write(alice | {"message.timeout.ms": 3000}, "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([acl])[acl].result(30)

    eventually(lambda: write(alice | {"message.timeout.ms": 3000}, "orders") is None, "the ACL on all nodes")


def test_a_user_gets_another_password(with_logins: ClusterInProcess) -> None:
    cluster = with_logins
    for password in ("old", "new"):
        cluster.add_user("carol", password)
        AdminClient(librdkafka(cluster, "carol", password)).list_topics(timeout=30)
    assert tells(librdkafka(cluster, "carol", "old"), KafkaError._AUTHENTICATION)


def test_users_and_password_are_there_after_a_restart_of_all_nodes(with_logins: ClusterInProcess) -> None:
    with_logins.add_user("dora", "doras")
    with_logins.kill(*with_logins.node_ids)
    with_logins.restart(*with_logins.node_ids)

    assert write(librdkafka(with_logins), "after") is None
    assert set(AdminClient(librdkafka(with_logins, "dora", "doras")).list_topics(timeout=30).brokers) == {1, 2, 3}


def test_a_folder_of_ones_own_keeps_authority_and_password(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=1, folder=tmp_path, secured=True) as first:
        password, authority = first.password, first.ca_file.read_bytes()
        first.add_user("erna", "ernas")

    with ClusterInProcess(nodes=1, folder=tmp_path, secured=True) as second:
        assert (second.password, second.ca_file.read_bytes()) == (password, authority)
        assert write(librdkafka(second), "kept") is None
        AdminClient(librdkafka(second, "erna", "ernas")).list_topics(timeout=30)


def test_an_authorizer_is_a_matter_of_configs() -> None:
    with ClusterInProcess(nodes=1, secured="SASL_PLAINTEXT", configs={"authorizer.class.name": ""}) as cluster:
        cluster.add_user("anybody", "password")
        with pytest.raises(QuorateError, match="no authority where there is no TLS: SASL_PLAINTEXT"):
            print(cluster.ca_file)
        assert write(librdkafka(cluster, "anybody", "password"), "open") is None


def test_a_certificate_shows_who_a_client_is_where_there_are_no_logins() -> None:
    with ClusterInProcess(nodes=1, secured="SSL", configs={"authorizer.class.name": STANDARD_AUTHORIZER}) as cluster:
        assert write(librdkafka(cluster), "certified") is None
        anonymous = librdkafka(cluster)
        for key in ("ssl.certificate.location", "ssl.key.location"):
            del anonymous[key]
        assert "certified" not in AdminClient(anonymous).list_topics(timeout=30).topics
        assert cluster.client_certificate.exists()


def test_a_cluster_that_is_not_secured_has_settings_too() -> None:
    with ClusterInProcess(nodes=1) as cluster:
        assert write(librdkafka(cluster), "plain") is None
        assert cluster.client_settings("java") == {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "PLAINTEXT",
        }
        with pytest.raises(QuorateError, match=r"ClusterInProcess\(secured=True\)"):
            cluster.add_user("a", "b")
        with pytest.raises(QuorateError, match="not secured"):
            print(cluster.client_properties)


def test_mistakes_are_sentences(with_logins: ClusterInProcess, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(QuorateError, match="secured='sasl_ssl' is not True, False or one of SSL, SASL_PLAINTEXT"):
        ClusterInProcess(secured="sasl_ssl")  # type: ignore[arg-type]
    with pytest.raises(QuorateError, match="with statement"):
        print(ClusterInProcess(secured=True).password)
    with pytest.raises(QuorateError, match="'java2' is not one of java, librdkafka"):
        with_logins.client_settings("java2")  # type: ignore[arg-type]
    with pytest.raises(QuorateError, match="with a name and a password"):
        with_logins.client_settings("java", "alice")
    with pytest.raises(QuorateError, match="not empty, and has no blanks around it"):
        with_logins.add_user(" alice", "x")
    with pytest.raises(QuorateError, match="the password is empty"):
        with_logins.add_user("alice", "")
    with pytest.raises(QuorateError, match="clients show no certificates"):
        print(with_logins.client_certificate)


def test_no_password_is_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), ClusterInProcess(nodes=1, secured=True) as cluster:
        cluster.add_user("frida", "fridas secret")
        assert "first user made node=1 user='admin'" in caplog.text
        for secret in (cluster.password, "fridas secret"):
            assert secret not in caplog.text + repr(vars(cluster))
