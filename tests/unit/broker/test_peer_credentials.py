"""The files by which nodes know each other: who may read them, what is wrong with them, and how they change."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.peer_credentials import (
    CredentialFiles,
    CredentialWatch,
    OsOperatorFiles,
    check_certificate_files,
    make_secret_file,
    read_secret_file,
)
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.peer_tls import PeerCredentials
from tests.peers.node_certificates import NodeAuthority, NodeFiles
from tests.simulation.world.host import SECRET, SECRET_FILE, MemoryFiles
from tests.simulation.world.world import World

BASE = 'node_id = 7\ndata_dir = "/data"\nlisten = "h:1"\n'
NEW = "n" * 32


def config(text: str = f'peer_listen = "h:2"\ncluster_secret_file = "{SECRET_FILE}"\n') -> NodeConfig:
    return parse_node_config(BASE + text)


def test_a_node_with_peers_needs_a_secret_or_says_that_it_needs_none() -> None:
    with pytest.raises(QuorateError, match=r"cluster_secret_file.*openssl rand.*peers_unauthenticated"):
        config('peer_listen = "h:2"\n')
    with pytest.raises(QuorateError, match="not both"):
        config('peer_listen = "h:2"\ncluster_secret_file = "/s"\npeers_unauthenticated = true\n')

    assert config('peer_listen = "h:2"\npeers_unauthenticated = true\n').peers_unauthenticated
    assert config("").cluster_secret_file is None  # It has no peers.


CERTIFICATES = 'peer_certificate_file = "/node.pem"\npeer_ca_file = "/ca.pem"\n'


def test_certificates_do_in_place_of_a_secret_or_beside_it() -> None:
    assert config(f'peer_listen = "h:2"\n{CERTIFICATES}').cluster_secret_file is None
    both = config(f'peer_listen = "h:2"\ncluster_secret_file = "/s"\n{CERTIFICATES}')
    assert (both.cluster_secret_file, both.peer_certificate_file, both.peer_ca_file) == ("/s", "/node.pem", "/ca.pem")
    for line in CERTIFICATES.splitlines():
        with pytest.raises(QuorateError, match="peer_certificate_file and peer_ca_file go together"):
            config(f'peer_listen = "h:2"\ncluster_secret_file = "/s"\n{line}\n')
    with pytest.raises(QuorateError, match="either a peer_certificate_file or peers_unauthenticated = true, not both"):
        config(f'peer_listen = "h:2"\npeers_unauthenticated = true\n{CERTIFICATES}')
    with pytest.raises(QuorateError, match="did you mean 'peer_certificate_file'"):
        config('peer_listen = "h:2"\npeer_certificates_file = "/node.pem"\n')


def test_a_new_secret_is_for_its_owner_alone_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    make_secret_file(path)
    text = path.read_text()
    make_secret_file(path)

    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(text.strip()) == 64
    read_secret_file(str(path))


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o660])
def test_a_secret_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "s"
    path.write_text(SECRET)
    path.chmod(mode)

    with pytest.raises(QuorateError, match=f"cluster_secret_file: .*chmod 600 {path}"):
        read_secret_file(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own a file as root")
def test_a_secret_of_root_may_be_read_by_one_group(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(SECRET)
    path.chmod(0o440)
    read_secret_file(str(path))
    os.chown(path, 12345, -1)

    with pytest.raises(QuorateError, match="chmod 600"):
        read_secret_file(str(path))


def test_a_missing_or_unfit_secret_is_one_sentence_that_does_not_show_it(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="cluster_secret_file: /nosuch cannot be read: No such file or directory"):
        read_secret_file("/nosuch")
    path = tmp_path / "s"
    path.write_text("hunter2")
    path.chmod(0o600)
    with pytest.raises(QuorateError, match=f"cluster_secret_file: {path}: a cluster's secret has at least") as raised:
        read_secret_file(str(path))
    assert "hunter2" not in str(raised.value)


def test_the_real_files_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("PEM")

    assert OsOperatorFiles().read(str(path)) == b"PEM"


class Watched:
    """A node's watch in virtual time."""

    def __init__(self, world: World, node: NodeConfig) -> None:
        self.world = world
        self.host = world.add_host("n7")
        self.files = self.host.operator_files
        put_certificates(self.files, OURS)
        self.loaded: list[PeerCredentials] = []
        self.looks: list[float] = []
        self.changes: list[PeerCredentials] = []
        self.failures: list[Exception] = []
        self.node_files = CredentialFiles(node, self.files)
        self.watch: CredentialWatch

    async def start(self) -> None:
        texts, loaded = self.node_files.load()
        self.loaded.append(loaded)
        environment = self.host.environment
        self.watch = CredentialWatch(
            NodeId(7),
            self.node_files,
            texts,
            loop=environment.loop,
            executor=environment.executor,
            on_change=self.changes.append,
            on_failure=self.failures.append,
            on_look=lambda: self.looks.append(environment.loop.time()),
        )
        self.watch.start()

    def put(self, text: str) -> None:
        self.files.contents[SECRET_FILE] = text.encode()


def in_a_world(scenario: Callable[[Watched], Any], node: NodeConfig | None = None) -> None:
    with World(1) as world:
        watched = Watched(world, node or config())

        async def run() -> None:
            await watched.host.run(watched.start())
            await scenario(watched)
            await watched.host.run(watched.watch.stop())
            assert watched.failures == []

        world.run(run())


def test_a_changed_secret_counts_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        await watched.world.sleep(5)
        assert watched.changes == []
        watched.put(f"{NEW}\n{SECRET}\n")
        await watched.world.sleep(5)
        (changed,) = watched.changes
        assert changed.secrets is not None
        assert len(changed.secrets.keys("peers")) == 2

    with caplog.at_level(logging.INFO):
        in_a_world(scenario)
    assert "peer credentials changed node=7" in caplog.text
    assert NEW not in caplog.text


def test_a_file_that_is_being_written_is_waited_for() -> None:
    async def scenario(watched: Watched) -> None:
        for number in range(20):
            watched.put(NEW + "x" * number)
            await watched.world.sleep(0.9)
        assert watched.changes == []
        await watched.world.sleep(5)
        assert len(watched.changes) == 1

    in_a_world(scenario)


def test_what_cannot_be_used_changes_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        watched.put("short")
        await watched.world.sleep(10)
        del watched.files.contents[SECRET_FILE]
        await watched.world.sleep(10)
        assert watched.changes == []
        watched.put(SECRET)
        await watched.world.sleep(5)
        watched.put(NEW)
        await watched.world.sleep(5)
        assert len(watched.changes) >= 1

    in_a_world(scenario)
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 2
    assert "cannot be read" in told[1]


def test_a_node_without_peers_looks_at_nothing() -> None:
    files = CredentialFiles(config(""), MemoryFiles())

    assert files.is_none
    assert files.load()[1] == PeerCredentials()


class _Unused(Executor):
    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        raise AssertionError("nothing is to be read")


def test_its_watch_starts_nothing() -> None:
    async def scenario() -> None:
        node_files = CredentialFiles(config(""), MemoryFiles())
        texts, _ = node_files.load()
        watch = CredentialWatch(
            NodeId(7),
            node_files,
            texts,
            loop=asyncio.get_running_loop(),
            executor=_Unused(),
            on_change=lambda _: None,
            on_failure=lambda _: None,
        )
        watch.start()
        await watch.stop()

    asyncio.run(scenario())


OURS, OTHERS = NodeAuthority(), NodeAuthority()


def put_certificates(files: MemoryFiles, authority: NodeAuthority, *trusted: NodeAuthority) -> None:
    files.contents["/node.pem"] = authority.issue(7)
    files.contents["/ca.pem"] = b"".join(each.certificate for each in (authority, *trusted))


def with_certificates() -> NodeConfig:
    return config(f'peer_listen = "h:2"\ncluster_secret_file = "{SECRET_FILE}"\n{CERTIFICATES}')


def test_a_changed_certificate_counts_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        (before,) = watched.loaded
        put_certificates(watched.files, OTHERS, OURS)
        await watched.world.sleep(5)
        (changed,) = watched.changes
        assert before.tls is not None
        assert changed.tls is not None
        assert changed.tls is not before.tls
        assert len(watched.looks) >= 4
        assert changed.secrets is not None

    with caplog.at_level(logging.INFO):
        in_a_world(scenario, with_certificates())
    assert "peer credentials changed node=7" in caplog.text


@pytest.mark.parametrize(
    "break_them",
    [
        pytest.param(lambda files: files.contents.update({"/node.pem": OURS.issue(7, 3)}), id="expired"),
        pytest.param(lambda files: files.contents.update({"/node.pem": OURS.issue(100)}), id="another node's"),
        pytest.param(lambda files: files.contents.update({"/node.pem": OTHERS.issue(7)}), id="another authority"),
        pytest.param(lambda files: files.contents.update({"/node.pem": b""}), id="empty"),
        pytest.param(lambda files: files.contents.update({"/ca.pem": OTHERS.certificate}), id="not its authority"),
        pytest.param(lambda files: files.contents.pop("/ca.pem"), id="gone"),
    ],
)
def test_a_certificate_that_cannot_be_used_changes_nothing_and_is_told_once(
    break_them: Callable[[MemoryFiles], object], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(watched: Watched) -> None:
        break_them(watched.files)
        watched.files.contents[SECRET_FILE] = NEW.encode()  # Good by itself.
        await watched.world.sleep(10)
        assert watched.changes == []
        put_certificates(watched.files, OURS)
        await watched.world.sleep(5)
        assert len(watched.changes) == 1

    in_a_world(scenario, with_certificates())
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "peer credentials not changed node=7 error=peer_" in told


@pytest.mark.parametrize("key", ["peer_certificate_file", "peer_ca_file"])
def test_a_missing_file_is_one_sentence(key: str) -> None:
    files = MemoryFiles()
    put_certificates(files, OURS)
    del files.contents[{"peer_certificate_file": "/node.pem", "peer_ca_file": "/ca.pem"}[key]]
    with pytest.raises(QuorateError, match=f"{key}: /.*pem cannot be read: No such file or directory"):
        CredentialFiles(with_certificates(), files).load()


def test_a_key_that_others_can_read_is_refused_and_an_authority_may_be_read_by_all(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, OURS, [7])
    own, authorities = str(files.certificate_file(7)), str(files.authority_file)
    files.authority_file.chmod(0o644)
    check_certificate_files(own, authorities, NodeId(7))
    files.certificate_file(7).chmod(0o644)
    with pytest.raises(QuorateError, match=f"peer_certificate_file: .*chmod 600 {own}"):
        check_certificate_files(own, authorities, NodeId(7))


def test_no_error_of_the_disk_is_a_traceback() -> None:
    class Broken(MemoryFiles):
        def read_private(self, path: str) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(QuorateError, match="cannot be read: Input/output error"):
        CredentialFiles(config(), Broken()).load()
