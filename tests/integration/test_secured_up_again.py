"""What a secured cluster keeps from start to start, what it renews and adds, and what ``quorate up`` refuses."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from quorate.cli.local.layout import Wishes, lay_out
from quorate.kernel.ids import NodeId
from quorate.security.certificates import Issued, Subject, examine_certificate, issue
from tests.eventually import eventually
from tests.integration.test_secured_up import VALUES, allow, make_user, read, tells, write
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line
from tests.peers.secured_up import SecuredUp

ANYTHING: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY,
    ANYTHING,
    ResourcePatternType.ANY,
    ANYTHING,
    ANYTHING,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredUp]:
    with SecuredUp(tmp_path / "cluster", nodes=1) as running:
        yield running


def credentials(cluster: SecuredUp) -> dict[str, bytes]:
    names = ["ca.pem", "ca.key", "admin.password", "node-1.pem", "cluster.secret", "client.properties"]
    return {name: (cluster.folder / name).read_bytes() for name in names}


def test_users_acls_and_certificates_are_there_after_a_restart_and_new_nodes_join_them(
    cluster: SecuredUp, tmp_path: Path
) -> None:
    make_user(cluster, "alice", "alices")
    allow(cluster, "alice", "orders")
    alice = cluster.librdkafka("alice", "alices")
    write(alice, "orders")
    before = credentials(cluster)
    cluster.stop()

    cluster.start()

    assert credentials(cluster) == before
    assert read(alice, "orders") == VALUES
    admin = AdminClient(cluster.librdkafka())
    assert {acl.principal for acl in admin.describe_acls(EVERY_ACL).result(30)} == {"User:alice"}
    assert tells(cluster.librdkafka("alice", "wrong"), KafkaError._AUTHENTICATION)
    cluster.stop()

    (cluster.folder / "admin.password").rename(tmp_path / "kept elsewhere")
    cluster.start("--nodes", "2")
    (tmp_path / "kept elsewhere").rename(cluster.folder / "admin.password")

    after = credentials(cluster)
    assert after.pop("client.properties") != before.pop("client.properties")
    assert after == before
    status = cluster.command("cluster", "status")
    assert status.returncode == 0, status.stdout
    assert len(cluster.bootstrap.split(",")) == 2
    second = cluster.librdkafka("alice", "alices") | {"bootstrap.servers": cluster.bootstrap.split(",")[1]}
    write(second, "orders")


def test_a_node_is_added_with_a_certificate_of_the_clusters_authority(cluster: SecuredUp, tmp_path: Path) -> None:
    certificate, listen = tmp_path / "node-8.pem", f"127.0.0.1:{free_port()}"
    issued = ("tls", "issue", "--ca", str(cluster.folder), "--name", "node-8", "--host", "127.0.0.1", "--node-id", "8")
    subprocess.run([str(QUORATE), *issued, "--out", str(certificate)], check=True, timeout=60)
    adding = (
        *("cluster", "add-node", "--node-id", "8", "--listen", listen, "--peer-listen", f"127.0.0.1:{free_port()}"),
        *("--data", str(tmp_path / "node-8"), "--cluster-secret-file", str(cluster.folder / "cluster.secret")),
        *("--command-config", str(cluster.properties)),
    )
    without = subprocess.run([str(QUORATE), *adding], capture_output=True, text=True, timeout=60, check=False)
    assert "have TLS (SASL_SSL): name the node's own key and certificates" in without.stderr
    assert not (tmp_path / "node-8").exists()

    files = {
        "--certificate-file": certificate,
        "--peer-certificate-file": certificate,
        "--peer-ca-file": cluster.ca_file,
    }
    options = [text for option, path in files.items() for text in (option, str(path))]
    node = ChildProcess([str(QUORATE), *adding, *options], tmp_path / "node-8.log")
    try:
        node.wait_for_output(ready_line, "the node to be ready", START_TIMEOUT_S)
        write(cluster.librdkafka() | {"bootstrap.servers": listen}, "through-the-new-node")
        status = cluster.command("cluster", "status")
        assert f"{listen}" in status.stdout
        assert status.returncode == 0, status.stdout
    finally:
        node.stop()


def test_a_certificate_that_has_ended_is_renewed_by_the_next_start(cluster: SecuredUp) -> None:
    cluster.stop()
    authority = Issued(certificate=cluster.ca_file.read_bytes(), key=(cluster.folder / "ca.key").read_bytes())
    certificate = cluster.folder / "node-1.pem"
    subject = Subject(name="node-1", hosts=("127.0.0.1",), node_id=NodeId(1))
    ended = issue(authority, subject, datetime.now(UTC) - timedelta(days=400))
    certificate.write_bytes(ended.key_and_chain)

    cluster.start()

    assert (
        f"there is a new certificate in {certificate}, as the old one ends soon or has ended"
        in cluster.process.output()
    )
    assert examine_certificate(certificate.read_bytes(), authority.certificate).expires > datetime.now(UTC)
    write(cluster.librdkafka(), "renewed")


def test_a_password_that_was_changed_stays_changed(cluster: SecuredUp) -> None:
    old = cluster.password
    make_user(cluster, "admin", "another password")
    cluster.stop()

    cluster.start()

    write(cluster.librdkafka("admin", "another password"), "changed")
    assert tells(cluster.librdkafka("admin", old), KafkaError._AUTHENTICATION)


def test_a_first_user_of_ones_own_is_the_super_user(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text('ü "quoted", ${HOME}\n')
    user = ("--first-user", "eva, the first = ü", "--first-user-password-file", str(password))

    with SecuredUp(tmp_path / "cluster", nodes=1, arguments=user) as cluster:
        password.unlink()
        status = cluster.command("cluster", "status")
        assert status.returncode == 0, status.stderr
        write(cluster.librdkafka("eva, the first = ü", 'ü "quoted", ${HOME}'), "hers")
        assert '"quoted"' not in cluster.process.output()


def refused(*arguments: str) -> str:
    done = subprocess.run([str(QUORATE), "up", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    return sentence


def test_mistakes_are_one_sentence_and_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    new = ("--data", str(folder), "--port", str(free_port()), "--secure")
    assert "/nosuch cannot be read" in refused(*new, "--first-user", "a", "--first-user-password-file", "/nosuch")
    assert "name both --first-user and --first-user-password-file" in refused(*new, "--first-user", "a")
    assert "has characters that some clients replace" in refused(
        *new, "--first-user", "a\x1b[31m\nb", "--first-user-password-file", "/nosuch"
    )
    assert {path.name for path in tmp_path.rglob("*")} <= {"cluster", ".lock"}
    assert "cannot be used" in refused("--data", "/proc/nosuch", "--secure")
    assert "is not UTF-8: name another one" in refused("--data", str(tmp_path / "\udcff"))
    (tmp_path / "file").touch()
    assert "cannot be used: Not a directory" in refused("--data", str(tmp_path / "file" / "x"), "--secure")


def test_a_cluster_that_trusts_everybody_is_not_turned_into_a_secured_one(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    lay_out(folder, Wishes(nodes=1, port=free_port())).write()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    sentence = refused("--data", str(folder), "--secure")

    assert "holds a cluster that --secure did not set up, and it is not changed: start it without --secure" in sentence
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == before


def test_the_folder_of_a_secured_cluster_is_its_owners_alone_and_told_if_not(cluster: SecuredUp) -> None:
    cluster.stop()
    (cluster.folder / "admin.password").chmod(0o644)

    cluster.start()  # What it was made of is in the cluster: nobody is kept from it.

    eventually(lambda: cluster.command("cluster", "status").returncode == 0, "the cluster to be healthy")
