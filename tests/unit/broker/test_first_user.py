"""The first user of a cluster: what its settings and its password's file may be, and when it is made."""

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quorate.broker.config import parse_node_config
from quorate.broker.first_user import FirstUser, FirstUserMaking, parse_first_user, read_password
from quorate.broker.peer_credentials import OsOperatorFiles
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.commands import Command
from quorate.metadata.core.decisions import Outcomes
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.security_commands import DeleteScramCredential
from quorate.metadata.store import MetadataStore
from quorate.security.scram_credentials import ScramMechanism, check_password
from tests.unit.metadata.core.cluster import Cluster

MINIMAL = 'node_id = 7\ndata_dir = "/tmp/x"\nlisten = "127.0.0.1:9092"\n'
ADMIN = FirstUser(name="admin", password_file="/admin.password")
PASSWORD = "correct horse"
BOTH = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


def test_the_table_of_a_nodes_file() -> None:
    table = '[first_user]\nname = "admin"\npassword_file = "/admin.password"\n'
    assert parse_node_config(MINIMAL).first_user is None
    assert parse_node_config(MINIMAL + table).first_user == ADMIN
    assert ADMIN.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    only = parse_node_config(MINIMAL + table + 'mechanisms = ["SCRAM-SHA-256"]\n').first_user
    assert only is not None
    assert only.mechanisms == ("SCRAM-SHA-256",)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("hidden", r"\[first_user\] is a table, with name"),
        ({"name": "admin", "password": "hidden"}, "a password is in a file of its own, which password_file names"),
        ({"name": "admin", "passwordfile": "/x"}, "unknown key 'passwordfile'; did you mean 'password_file'"),
        ({"password_file": "/x"}, "the key 'name' is missing"),
        ({"name": "admin"}, "the key 'password_file' is missing"),
        ({"name": "", "password_file": "/x"}, r"\[first_user\] name: a user's name is not empty"),
        ({"name": "a\nb", "password_file": "/x"}, r"name: 'a\\nb' has characters"),
        ({"name": "admin", "password_file": ""}, "password_file must name a file"),
        ({"name": 7, "password_file": "/x"}, "name"),
        ({"name": "admin", "password_file": "/x", "mechanisms": []}, "mechanisms names none"),
        ({"name": "admin", "password_file": "/x", "mechanisms": ["PLAIN"]}, "'PLAIN' is not one of SCRAM-SHA-512"),
        ({"name": "admin", "password_file": "/x", "mechanisms": "SCRAM-SHA-256"}, "mechanisms"),
    ],
)
def test_a_mistake_in_the_table_is_one_sentence_that_shows_no_password(table: object, sentence: str) -> None:
    with pytest.raises(QuorateError, match=sentence) as raised:
        parse_first_user(table)

    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)


def written(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("content", ["secret", "secret\n", "secret\r\n"])
def test_a_password_is_a_line_of_its_file(tmp_path: Path, content: str) -> None:
    assert read_password(written(tmp_path / "p", content.encode()), OsOperatorFiles()) == "secret"


def test_a_password_may_have_blanks_around_it_and_anything_that_a_keyboard_has(tmp_path: Path) -> None:
    path = written(tmp_path / "p", ' ü"\\,=${x} \n'.encode())
    assert read_password(path, OsOperatorFiles()) == ' ü"\\,=${x} '


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the password is empty"),
        (b"\n", "the password is empty"),
        (b"hidden\nhidden\n", "has characters that some clients replace"),
        (b"hidden\0", "has characters that some clients replace"),
        (b"\xff\xfehidden", "it is not UTF-8 text"),
        (b"hidden" * 200, "it is longer than 1024 bytes"),
        (b"x" * (10 << 20), "it is longer than 1024 bytes"),
        (os.urandom(10 << 20), "it is longer than 1024 bytes"),
    ],
    ids=["empty", "an empty line", "two lines", "a zero", "binary", "long", "10 MB", "10 MB at random"],
)
def test_what_is_no_password_is_one_sentence_that_does_not_show_it(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = written(tmp_path / "p", content)

    with pytest.raises(QuorateError, match=sentence) as raised:
        read_password(path, OsOperatorFiles())

    assert path in str(raised.value)
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o620])
def test_a_password_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    if os.geteuid() == 0 and mode == 0o640:
        pytest.skip("root may give a secret to one group")
    path = written(tmp_path / "p", b"hidden", mode)

    with pytest.raises(QuorateError, match=f"chmod 600 {path}"):
        read_password(path, OsOperatorFiles())


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match=r"the password file /nosuch cannot be read: No such file or directory"):
        read_password("/nosuch", OsOperatorFiles())
    with pytest.raises(QuorateError, match="cannot be read: Is a directory"):
        read_password(str(tmp_path), OsOperatorFiles())


class Files:
    def __init__(self, content: bytes | None = PASSWORD.encode()) -> None:
        self.content = content

    def read(self, path: str) -> bytes:
        raise AssertionError("a password is private")

    def read_private(self, path: str) -> bytes:
        if self.content is None:
            raise FileNotFoundError(2, "No such file or directory")
        return self.content


class AtOnce(Executor):
    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Metadata(MetadataStore):
    """Several nodes' view of one cluster: it is decided at once what they ask for."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.image)
        self._cluster = cluster
        self.timeouts = 0
        self.asked: list[Command] = []

    async def _carry_out(self, commands: Sequence[Command], *, validate_only: bool) -> Outcomes:
        self.asked += commands
        if self.timeouts:
            self.timeouts -= 1
            return [KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
        answers: Outcomes = [self._cluster.do(command).answer for command in commands]
        self.image = self._cluster.image
        return answers

    async def is_current(self) -> bool:
        return True


async def started(
    metadata: Metadata, files: Files, *, is_new: bool = True, node_id: int = 7, wanted: FirstUser | None = ADMIN
) -> None:
    making = FirstUserMaking(
        NodeId(node_id),
        wanted,
        files,
        loop=asyncio.get_running_loop(),
        executor=AtOnce(),
        random_bytes=Random(node_id).randbytes,
    )
    await making.read(is_new_node=is_new)
    await making.make(metadata)


def has_password(image: MetadataImage, name: str, password: str) -> bool:
    found = [image.security.scram_credential(each, name) for each in BOTH]
    return all(
        credential is not None and check_password(mechanism, credential, password)
        for mechanism, credential in zip(BOTH, found, strict=True)
    )


def test_three_nodes_that_all_ask_make_one_user(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()

    async def scenario() -> None:
        nodes = [Metadata(cluster) for _ in range(3)]
        for node_id, metadata in enumerate(nodes):
            await started(metadata, Files(f"{PASSWORD} {node_id}".encode()), node_id=node_id)
        assert [len(metadata.asked) for metadata in nodes] == [1, 1, 1]  # None of them has seen another's.

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())

    assert has_password(cluster.image, "admin", f"{PASSWORD} 0")
    assert len(cluster.image.security.scram_users) == 2
    salts = {credential.salt for credential in cluster.image.security.scram_users.values()}
    assert len(salts) == 2
    assert [each.getMessage() for each in caplog.records] == ["first user made node=0 user='admin'"]
    assert PASSWORD not in caplog.text + repr(cluster.image)


def test_nothing_is_asked_of_a_cluster_that_has_a_user() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await started(Metadata(cluster), Files())
        later = Metadata(cluster)
        await started(later, Files(b"another password"), is_new=False)
        assert later.asked == []

    asyncio.run(scenario())
    assert has_password(cluster.image, "admin", PASSWORD)


def test_whoever_deletes_the_last_user_has_the_first_one_again_at_the_next_start() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await started(Metadata(cluster), Files())
        for mechanism in BOTH:
            cluster.do(DeleteScramCredential(user="admin", mechanism=mechanism))
        await started(Metadata(cluster), Files(b"another password"), is_new=False)

    asyncio.run(scenario())
    assert has_password(cluster.image, "admin", "another password")


def test_a_quorum_that_takes_its_time_is_waited_for() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        metadata = Metadata(cluster)
        metadata.timeouts = 2
        await started(metadata, Files())
        assert len(metadata.asked) == 3

    asyncio.run(scenario())
    assert has_password(cluster.image, "admin", PASSWORD)


def test_a_new_node_does_not_start_without_the_password() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        metadata = Metadata(cluster)
        with pytest.raises(QuorateError, match=r"\[first_user\] the password file /admin.password cannot be read"):
            await started(metadata, Files(None))
        assert metadata.asked == []

    asyncio.run(scenario())


def test_a_node_of_a_cluster_that_works_starts_without_it_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await started(Metadata(cluster), Files(None), is_new=False)
        assert "first user not made node=7 user='admin' error=the password file" in caplog.text
        await started(Metadata(cluster), Files())
        caplog.clear()
        await started(Metadata(cluster), Files(None), is_new=False)
        assert caplog.text == ""  # There is a user, and no need to say anything.

    asyncio.run(scenario())


def test_nobody_is_made_who_was_not_asked_for() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        metadata = Metadata(cluster)
        await started(metadata, Files(), wanted=None)
        assert metadata.asked == []

    asyncio.run(scenario())
