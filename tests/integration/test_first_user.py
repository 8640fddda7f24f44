"""The first user of a node that runs: made once, and never again while anybody is there."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.peers.quorate_node import QuorateNode

PASSWORD = "correct horse battery staple"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text(f"{PASSWORD}\n")
    return path


def node_with(tmp_path: Path, password_file: Path) -> QuorateNode:
    user = {"name": "admin", "password_file": str(password_file)}
    return QuorateNode(tmp_path / "node", node_id=7, settings={"first_user": user}, configs={})


def users(node: QuorateNode) -> Mapping[str, list[int]]:
    """Each with the iterations of its mechanisms."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    described = admin.describe_user_scram_credentials().result(30)  # type: ignore[union-attr]
    return {name: sorted(info.iterations for info in found.scram_credential_infos) for name, found in described.items()}


def change(node: QuorateNode, *changes: UserScramCredentialAlteration) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for each in changes:
        for future in admin.alter_user_scram_credentials([each]).values():
            future.result(30)


def delete(node: QuorateNode, name: str) -> None:
    change(
        node,
        *(
            UserScramCredentialDeletion(name, mechanism)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ),
    )


def test_a_user_that_was_deleted_comes_back_only_when_nobody_is_left(tmp_path: Path, password_file: Path) -> None:
    with node_with(tmp_path, password_file) as node:
        node.restart()
        assert users(node) == {"admin": [4096, 4096]}
        salt = b"a salt of one's own"
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 8192)
            change(node, UserScramCredentialUpsertion("bob", info, b"bobs", salt))
        delete(node, "admin")
        node.stop()
        node.restart()
        assert users(node) == {"bob": [8192, 8192]}

        delete(node, "bob")
        password_file.unlink()
        node.stop()
        node.restart()  # Others may log in by other means: a node of a cluster that works starts.
        assert users(node) == {}
        assert f"first user not made node=7 user='admin' error=the password file {password_file}" in node.log_text()

        password_file.touch(0o600)
        password_file.write_text(PASSWORD)
        node.stop()
        node.restart()
        assert users(node) == {"admin": [4096, 4096]}
        assert PASSWORD not in node.log_text()
        files = [path for path in node.data_dir.rglob("*") if path.is_file()]
        assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (None, 0, "cannot be read: No such file or directory"),
        (b"", 0o600, "the password is empty"),
        (b"hidden\0", 0o600, "characters that some clients replace"),
        (b"hidden" * 1_700_000, 0o600, "longer than 1024 bytes"),
        (b"hidden", 0o644, "can be read or changed by others than its owner: chmod 600"),
    ],
    ids=["missing", "empty", "binary", "10 MB", "open to others"],
)
def test_a_new_node_does_not_start_with_a_password_that_cannot_be_used(
    tmp_path: Path, password_file: Path, content: bytes | None, mode: int, sentence: str
) -> None:
    password_file.unlink()
    if content is not None:
        password_file.write_bytes(content)
        password_file.chmod(mode)
    node = node_with(tmp_path, password_file)
    node.launch()

    assert node.process.wait(30) == 1
    told = node.log_text().splitlines()[-1]
    assert told.startswith("quorate: [first_user] ")
    assert str(password_file) in told
    assert sentence in told
    assert "hidden" not in node.log_text()
    assert [path.name for path in node.data_dir.iterdir()] == [".lock"]
