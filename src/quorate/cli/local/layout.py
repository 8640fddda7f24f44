"""What a local cluster has in its folder: a ``node.toml`` for each node, set up once and kept from then on.

Whoever starts the cluster again finds what is there, hand edits too. Only two things are ever added: nodes, and another
port for peers where somebody else has taken one. Everything that can be refused is refused before a file is written.
"""

import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from uuid import uuid4

import msgspec

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.cli.local.node_files import NodeFile, make_private_folder, write_private
from quorate.cli.options import read_settings_file
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, new_cluster_id

DEFAULT_NODES = 3
DEFAULT_PORT = 19092
#: Nodes listen for each other on the ports this far above those for clients, unless they are taken.
PEER_PORTS_ABOVE = 1000
_HOST = "127.0.0.1"
_FIRST_USER_PORT = 1024
_LAST_PORT = 65535


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has asked for; None and nothing for what is there already, or for the defaults."""

    nodes: int | None = None
    port: int | None = None
    configs: Mapping[str, str] = {}


class ClusterLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, by their ``node.toml``, and what that took."""

    nodes: Mapping[Path, NodeConfig]
    changed_files: Mapping[Path, str]
    moved_ports: Sequence[str]

    def write(self) -> None:
        for path, text in self.changed_files.items():
            make_private_folder(path.parent)
            write_private(path, text)


def lay_out(folder: Path, wishes: Wishes) -> ClusterLayout:
    """Nothing is written yet."""
    texts = dict(_read(folder))
    existing = {path: _parse(path, text) for path, text in texts.items()}
    count = wishes.nodes or len(existing) or DEFAULT_NODES
    _check_wishes(folder, wishes, existing, count)
    _check_unused(existing.values())
    for config in existing.values():
        _check_free(config.listen, f"change listen in {folder}/node-{config.node_id}/node.toml")
    moved = list(_moved_peers(existing))
    for old, new in moved:
        texts = {path: text.replace(f'"{old}"', f'"{new}"') for path, text in texts.items()}
    changed = {path: text for path, text in texts.items() if moved}
    settled = {path: _parse(path, text) for path, text in texts.items()}
    added = {path: file.text() for path, file in _new_files(folder, wishes, list(settled.values()), count)}
    nodes = settled | {path: _parse_own(text) for path, text in added.items()}
    return ClusterLayout(
        nodes=dict(sorted(nodes.items(), key=lambda item: item[1].node_id)),
        changed_files=changed | added,
        moved_ports=[f"port {old.port} for peers is taken: {new.port} takes its place" for old, new in moved],
    )


def _read(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.glob("node-*/node.toml"):
        yield path, read_settings_file(path)


def _parse(path: Path, text: str) -> NodeConfig:
    try:
        return parse_node_config(text)
    except QuorateError as error:
        raise QuorateError(f"{path}: {error}") from None


def _parse_own(text: str) -> NodeConfig:
    """What is wrong in a file that was made here came from the command line."""
    try:
        return parse_node_config(text)
    except QuorateError as error:
        raise QuorateError(f"--config: {str(error).removeprefix('[configs] ')}") from None


def _check_wishes(folder: Path, wishes: Wishes, existing: Mapping[Path, NodeConfig], count: int) -> None:
    if not existing:
        return
    if count < len(existing):
        raise QuorateError(
            f"{folder} holds a cluster of {len(existing)} nodes: "
            f"start it with --nodes {len(existing)}, or name another folder with --data"
        )
    first = min(existing.values(), key=lambda config: config.node_id)
    if wishes.port is not None and wishes.port != first.listen.port:
        raise QuorateError(
            f"{folder} holds a cluster that was set up with --port {first.listen.port}: leave --port out, change "
            f"the addresses in its node.toml files, or name another folder with --data"
        )
    for name, value in wishes.configs.items():
        for path, config in existing.items():
            if config.configs.get(name) != value:
                raise QuorateError(
                    f"{folder} holds a cluster that was set up without --config {name}={value}: change it under "
                    f"[configs] in {path} and the others, or name another folder with --data"
                )


def _check_unused(existing: Iterable[NodeConfig]) -> None:
    """Also of nodes that were started by hand."""
    with ExitStack() as held:
        for config in existing:
            held.enter_context(lock_data_dir(config.data_dir))


def _moved_peers(existing: Mapping[Path, NodeConfig]) -> Iterator[tuple[Address, Address]]:
    """The old and the new address of those whose port for peers somebody else has."""
    used = {config.listen.port for config in existing.values()}
    used |= {config.peer_listen.port for config in existing.values() if config.peer_listen is not None}
    for path, config in existing.items():
        old = config.peer_listen
        if old is None or is_free(old):
            continue
        if not re.search(rf'^\s*peer_listen\s*=\s*"{re.escape(str(old))}"', path.read_text(), re.MULTILINE):
            raise QuorateError(f"cannot listen for peers on {old}: it is taken; change peer_listen in {path}")
        new = Address(old.host, _free_port(old.port + 1, used))
        used.add(new.port)
        yield old, new


def _new_files(
    folder: Path, wishes: Wishes, existing: Sequence[NodeConfig], count: int
) -> Iterator[tuple[Path, NodeFile]]:
    known = {config.node_id for config in existing}
    node_ids = [NodeId(number) for number in range(1, count + len(known) + 1) if number not in known]
    node_ids = node_ids[: count - len(existing)]
    first_port = wishes.port or min((config.listen.port for config in existing), default=DEFAULT_PORT)
    if first_port + count - 1 > _LAST_PORT:
        raise QuorateError(f"--port {first_port} leaves no room for {count} nodes: choose a lower one")
    used = {config.listen.port for config in existing}
    used |= {config.peer_listen.port for config in existing if config.peer_listen is not None}
    listen = {node_id: Address(_HOST, first_port + node_id - 1) for node_id in node_ids}
    for address in listen.values():
        _check_free(address, "choose another --port")
        used.add(address.port)
    peers: dict[NodeId, Address] = {}
    for node_id, address in listen.items():
        peers[node_id] = Address(_HOST, _free_port(address.port + PEER_PORTS_ABOVE, used))
        used.add(peers[node_id].port)
    voters = existing[0].voters if existing else {each: peers[each] for each in node_ids[: _voter_count(count)]}
    cluster_id = (existing[0].cluster_id if existing else None) or new_cluster_id(uuid4())
    configs = existing[0].configs if existing else _default_configs(count) | dict(wishes.configs)
    for node_id in node_ids:
        place = folder / f"node-{node_id}"
        yield (
            place / "node.toml",
            NodeFile(
                node_id=node_id,
                data_dir=str(place / "data"),
                listen=str(listen[node_id]),
                peer_listen=str(peers[node_id]),
                cluster_id=cluster_id,
                voters={voter: str(address) for voter, address in voters.items()},
                log_file=str(place / "node.log"),
                configs=configs,
            ),
        )


def _default_configs(count: int) -> dict[str, str]:
    return {
        "group.initial.rebalance.delay.ms": "0",  # One developer's consumers need not wait for others.
        "default.replication.factor": str(min(count, 3)),
        "min.insync.replicas": "2" if count >= 3 else "1",
    }


def _voter_count(nodes: int) -> int:
    """An odd number: one more would have to agree, and none more may fail."""
    return min(nodes if nodes % 2 else nodes - 1, 5)


def _free_port(wanted: int, used: set[int]) -> int:
    """The wanted one, or the next one above it that nobody has; from below where there is none above."""
    candidates = chain(range(wanted, _LAST_PORT + 1), range(min(wanted, _LAST_PORT), _FIRST_USER_PORT, -1))
    for port in candidates:
        if port not in used and is_free(Address(_HOST, port)):
            return port
    raise QuorateError("no port is free on this machine")


def _check_free(address: Address, advice: str) -> None:
    """Before anything starts, lest one node that cannot listen leaves the others without it."""
    error = _bind_error(address)
    if error is not None:
        raise QuorateError(f"cannot listen on {address}: {error.strerror}; {advice}")


def is_free(address: Address) -> bool:
    return _bind_error(address) is None


def _bind_error(address: Address) -> OSError | None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return error
    return None
