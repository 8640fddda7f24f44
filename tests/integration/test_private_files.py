"""What a node has on its disk is read by its owner alone, and what its operator has opened stays open."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from quorate.cli.local.node_files import write_private
from tests.eventually import eventually
from tests.peers.child_process import ChildProcess, free_port
from tests.peers.quorate_node import QUORATE, START_TIMEOUT_S, ready_line


@contextmanager
def cluster(folder: Path, port: int | None = None) -> Iterator[str]:
    """Of one node, whose umask allows everything; its bootstrap address."""
    port = port or free_port()
    arguments = ["up", "--nodes", "1", "--port", str(port), "--data", str(folder)]
    process = ChildProcess(
        ["sh", "-c", 'umask 0 && exec "$@"', "sh", str(QUORATE), *arguments], folder.with_suffix(".log")
    )
    try:
        process.wait_for_output(ready_line, "the cluster to be ready", START_TIMEOUT_S)
        yield f"127.0.0.1:{port}"
    finally:
        process.stop()


def use(bootstrap: str) -> None:
    """Records, offsets of transactions and producers: all kinds of files."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "t"}
    producer = Producer(settings)
    producer.init_transactions()
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("topic", b"x" * 1000)
        producer.flush()
        ends()


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def open_to_others(folder: Path) -> dict[str, int]:
    return {name: mode for name, mode in modes(folder).items() if mode & 0o077}


def test_every_file_of_a_running_and_of_a_stopped_cluster_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    with cluster(folder) as bootstrap:
        use(bootstrap)
        assert open_to_others(folder) == {}
        assert {"cluster.json", "node-1/node.log", "node-1/node.toml", "node-1/data/.lock"} <= set(modes(folder))
    assert open_to_others(folder) == {}
    assert any(name.endswith(".snapshot") for name in modes(folder))
    assert any(name.endswith(".txnindex") for name in modes(folder))


def test_what_an_operator_has_opened_stays_open_and_is_told(tmp_path: Path) -> None:
    folder, port = tmp_path / "cluster", free_port()
    with cluster(folder, port):
        pass
    opened = [folder / "node-1" / "data", folder / "cluster.json", folder / "node-1" / "node.toml"]
    for path, mode in zip(opened, (0o750, 0o644, 0o640), strict=True):
        path.chmod(mode)

    with cluster(folder, port):
        log = folder / "node-1" / "node.log"
        warning = f"WARNING quorate.broker.data_dir_lock data folder is open to other users path={opened[0]} mode=0750"
        eventually(lambda: warning in log.read_text(), "the node to tell it")
        assert open_to_others(folder) == {
            "cluster.json": 0o644,
            "node-1/node.toml": 0o640,
            "node-1/data": 0o750,
        }


def test_nobody_else_can_read_a_file_that_is_being_written(tmp_path: Path) -> None:
    """Neither the draft of an earlier try, nor one that a stranger has put there, is written into."""
    path = tmp_path / "node.toml"
    draft = tmp_path / "node.toml.new"
    stranger = tmp_path / "elsewhere"
    stranger.write_text("theirs")
    draft.symlink_to(stranger)

    write_private(path, "node_id = 1\n")

    assert (path.read_text(), stranger.read_text()) == ("node_id = 1\n", "theirs")
    assert modes(tmp_path)["node.toml"] == 0o600
    assert not draft.exists()
