"""What ``quorate up`` puts into its folder, keeps there, and refuses before it has changed anything."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.peer_credentials import read_secret_file
from quorate.cli.local.layout import PEER_PORTS_ABOVE, ClusterLayout, Wishes, lay_out
from quorate.kernel.errors import QuorateError
from tests.unit.cli.local.port_rows import first_of_free_ports


@pytest.fixture
def port() -> int:
    return first_of_free_ports()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def taken(port: int) -> Iterator[int]:
    """The second node's port for peers, which somebody else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + PEER_PORTS_ABOVE + 1))
        other.listen()
        yield port + PEER_PORTS_ABOVE + 1


def set_up(folder: Path, wishes: Wishes) -> ClusterLayout:
    layout = lay_out(folder, wishes)
    layout.write()
    return layout


def texts(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_first_start_writes_a_file_for_each_node(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))

    configs = list(layout.nodes.values())
    assert [config.node_id for config in configs] == [1, 2, 3]
    assert [config.listen.port for config in configs] == [port, port + 1, port + 2]
    assert [config.peer_listen.port - port for config in configs if config.peer_listen] == [1000, 1001, 1002]
    assert all(config.voters == configs[0].voters for config in configs)


def test_first_start_makes_a_secret_that_all_nodes_share(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))

    (path,) = {config.cluster_secret_file for config in layout.nodes.values()}
    assert path == str(folder / "cluster.secret")
    assert Path(path).stat().st_mode & 0o777 == 0o600
    secret = read_secret_file(path)
    set_up(folder, Wishes(nodes=4))  # One more has the same.
    assert read_secret_file(path).keys("peers") == secret.keys("peers")


def test_a_folder_of_a_version_without_secrets_gets_one(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))
    for path in layout.nodes:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if "cluster_secret_file" not in line))
    (folder / "cluster.secret").unlink()

    again = set_up(folder, Wishes())

    assert {config.cluster_secret_file for config in again.nodes.values()} == {str(folder / "cluster.secret")}
    read_secret_file(str(folder / "cluster.secret"))
    assert lay_out(folder, Wishes()).changed_files == {}


def test_a_folder_whose_nodes_want_no_secret_gets_none(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))
    for path in layout.nodes:
        lines = path.read_text().splitlines(keepends=True)
        text = "".join(line for line in lines if "cluster_secret_file" not in line)
        path.write_text("peers_unauthenticated = true\n" + text)
    (folder / "cluster.secret").unlink()

    again = set_up(folder, Wishes(nodes=4))

    assert all(config.peers_unauthenticated for config in again.nodes.values())
    assert not (folder / "cluster.secret").exists()


def test_later_start_keeps_what_was_changed_by_hand(folder: Path, port: int) -> None:
    set_up(folder, Wishes(nodes=3, port=port))
    path = folder / "node-2" / "node.toml"
    path.write_text('# mine\nrack = "b"\n' + path.read_text() + '"num.partitions" = "7"\n')
    before = texts(folder)

    layout = set_up(folder, Wishes())

    assert texts(folder) == before
    assert layout.nodes[path].rack == "b"
    assert layout.nodes[path].configs["num.partitions"] == "7"


def test_configs_of_the_command_line_go_into_every_file(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port, configs={"num.partitions": "4", "min.insync.replicas": "1"}))

    for config in layout.nodes.values():
        assert config.configs["num.partitions"] == "4"
        assert config.configs["min.insync.replicas"] == "1"
        assert config.configs["default.replication.factor"] == "3"
    assert lay_out(folder, Wishes(configs={"num.partitions": "4"})).changed_files == {}


def test_config_that_does_not_exist_is_refused_before_anything_is_written(folder: Path, port: int) -> None:
    with pytest.raises(QuorateError, match=r"^--config: .*num\.partitons"):
        set_up(folder, Wishes(port=port, configs={"num.partitons": "4"}))
    assert not folder.exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nodes": 2}, "start it with --nodes 3"),
        ({"port": 2000}, "leave --port out"),
        ({"configs": {"num.partitions": "9"}}, "set up without --config num.partitions=9"),
    ],
)
def test_settings_are_taken_once(folder: Path, port: int, change: dict[str, object], sentence: str) -> None:
    set_up(folder, Wishes(nodes=3, port=port))
    before = texts(folder)

    with pytest.raises(QuorateError, match=sentence):
        set_up(folder, Wishes(**change))  # type: ignore[arg-type]

    assert texts(folder) == before


def test_folder_whose_node_runs_is_refused(folder: Path, port: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))
    second = list(layout.nodes.values())[1]

    with lock_data_dir(second.data_dir), pytest.raises(QuorateError, match="node-2/data is in use"):
        lay_out(folder, Wishes(nodes=5))


def test_taken_port_for_peers_gets_another_at_the_first_start(folder: Path, port: int, taken: int) -> None:
    layout = set_up(folder, Wishes(nodes=3, port=port))

    peers = [config.peer_listen.port for config in layout.nodes.values() if config.peer_listen]
    assert taken not in peers
    assert len(set(peers)) == 3


def test_port_for_peers_that_is_taken_later_gets_another_in_every_file(folder: Path, port: int) -> None:
    set_up(folder, Wishes(nodes=3, port=port))
    path = folder / "node-2" / "node.toml"
    path.write_text("# mine\n" + path.read_text())
    old = port + PEER_PORTS_ABOVE + 1
    with socket.socket() as other:
        other.bind(("127.0.0.1", old))
        other.listen()

        layout = set_up(folder, Wishes())

    assert any(str(old) in line for line in layout.moved_ports)
    moved = layout.nodes[path].peer_listen
    assert moved is not None
    assert moved.port != old
    assert path.read_text().startswith("# mine\n")
    assert all(config.voters[layout.nodes[path].node_id] == moved for config in layout.nodes.values())


def test_taken_port_for_clients_is_refused_before_anything_is_written(folder: Path, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 2))
        other.listen()
        with pytest.raises(QuorateError, match=f"{port + 2}.*choose another --port"):
            set_up(folder, Wishes(nodes=3, port=port))
    assert not folder.exists()


def test_nodes_that_are_added_follow_those_that_are_there(folder: Path, port: int) -> None:
    first = set_up(folder, Wishes(nodes=1, port=port, configs={"num.partitions": "4"}))
    before = texts(folder)

    layout = set_up(folder, Wishes(nodes=3))

    configs = list(layout.nodes.values())
    assert [config.listen.port for config in configs] == [port, port + 1, port + 2]
    assert all(config.voters == next(iter(first.nodes.values())).voters for config in configs)
    assert all(config.configs["num.partitions"] == "4" for config in configs)
    assert before.items() <= texts(folder).items()


def test_mistake_in_a_file_is_named_with_the_file(folder: Path, port: int) -> None:
    set_up(folder, Wishes(nodes=1, port=port))
    path = folder / "node-1" / "node.toml"
    path.write_text(path.read_text() + '"num.partitons" = 3\n')

    with pytest.raises(QuorateError, match=f"{path}: .*num.partitons"):
        lay_out(folder, Wishes())


def test_high_port_leaves_no_room_for_all_nodes(folder: Path) -> None:
    with pytest.raises(QuorateError, match="leaves no room"):
        lay_out(folder, Wishes(nodes=3, port=65534))
