"""What a local cluster has in its folder: a ``node.toml`` for each node, set up once and kept from then on.

Whoever starts the cluster again finds what is there, hand edits too. Only three things are ever added: nodes, another
port for peers where somebody else has taken one, and the name of the secret's file where there was no such thing yet.
Everything that can be refused is refused before a file is written.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import msgspec

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.first_user import FirstUser, read_password
from quorate.broker.peer_credentials import SECRET_FILE_NAME, OsOperatorFiles, make_secret_file
from quorate.cli.local.node_files import NodeFile, make_private_folder, secret_file_line, write_private
from quorate.cli.local.ports import HOST, LAST_PORT, check_free, free_port, is_free
from quorate.cli.local.security import ClusterSecurity, plan_security
from quorate.cli.options import read_settings_file
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, new_cluster_id

DEFAULT_NODES = 3
DEFAULT_PORT = 19092
#: Nodes listen for each other on the ports this far above those for clients, unless they are taken.
PEER_PORTS_ABOVE = 1000
#: One of them says how nodes know each other.
_PEER_PROOFS = ("cluster_secret_file", "peer_certificate_file", "peers_unauthenticated")


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has asked for; None and nothing for what is there already, or for the defaults."""

    nodes: int | None = None
    port: int | None = None
    configs: Mapping[str, str] = {}
    #: TLS, logins and ACLs for a new cluster; one that is there stays what it is.
    secure: bool = False
    first_user: FirstUser | None = None


class ClusterLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, by their ``node.toml``, and what that took."""

    nodes: Mapping[Path, NodeConfig]
    changed_files: Mapping[Path, str]
    moved_ports: Sequence[str]
    #: Made where it is named and missing.
    secret_file: Path
    #: None for a cluster that trusts whoever reaches it, or is secured by hand.
    security: ClusterSecurity | None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(config.advertised or config.listen) for config in self.nodes.values())

    def write(self) -> Sequence[str]:
        """Returns what an operator should know of it."""
        if any(config.cluster_secret_file == str(self.secret_file) for config in self.nodes.values()):
            make_private_folder(self.secret_file.parent)
            make_secret_file(self.secret_file)
        told = list(self.moved_ports)
        if self.security is not None:
            make_private_folder(self.secret_file.parent)
            node_ids = [config.node_id for config in self.nodes.values()]
            has_new_nodes = any(not path.exists() for path in self.nodes)
            told += self.security.write(node_ids, self.bootstrap_servers, has_new_nodes=has_new_nodes)
        for path, text in self.changed_files.items():
            make_private_folder(path.parent)
            write_private(path, text)
        return told


def lay_out(folder: Path, wishes: Wishes) -> ClusterLayout:
    """Nothing is written yet."""
    found = dict(_read(folder))
    secret_file = folder / SECRET_FILE_NAME
    texts = {path: _with_secret(text, secret_file) for path, text in found.items()}
    existing = {path: _parse(path, text) for path, text in texts.items()}
    count = wishes.nodes or len(existing) or DEFAULT_NODES
    _check_wishes(folder, wishes, existing, count)
    _check_unused(existing.values())
    security = plan_security(
        folder,
        list(existing.values()),
        is_wanted=wishes.secure,
        first_user=wishes.first_user,
        configs=wishes.configs,
    )
    for config in existing.values():
        check_free(config.listen, f"change listen in {folder}/node-{config.node_id}/node.toml")
    moved = list(_moved_peers(existing))
    for old, new in moved:
        texts = {path: text.replace(f'"{old}"', f'"{new}"') for path, text in texts.items()}
    changed = {path: text for path, text in texts.items() if text != found[path]}
    settled = {path: _parse(path, text) for path, text in texts.items()}
    added = {path: file.text() for path, file in _new_files(folder, wishes, list(settled.values()), count, security)}
    nodes = settled | {path: _parse_own(text) for path, text in added.items()}
    if security is not None:
        security.files.check_certificates(config.node_id for config in nodes.values())
    return ClusterLayout(
        nodes=dict(sorted(nodes.items(), key=lambda item: item[1].node_id)),
        changed_files=changed | added,
        secret_file=secret_file,
        security=security,
        moved_ports=[f"port {old.port} for peers is taken: {new.port} takes its place" for old, new in moved],
    )


def _read(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.glob("node-*/node.toml"):
        yield path, read_settings_file(path)


def _with_secret(text: str, secret_file: Path) -> str:
    """The text, with a secret where it is of a version that knew none. All nodes of the folder start together."""
    try:
        keys = tomllib.loads(text).keys()
    except tomllib.TOMLDecodeError:
        return text
    if "peer_listen" not in keys or not keys.isdisjoint(_PEER_PROOFS):
        return text
    return f"{secret_file_line(str(secret_file))}\n{text}"


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
    known = {config.first_user.name for config in existing.values() if config.first_user is not None}
    if wishes.first_user is not None and wishes.first_user.name not in known:
        raise QuorateError(
            f"{folder} holds a cluster that was set up without this --first-user: name the first user in a table "
            f"[first_user] in {next(iter(existing))} and the others, or name another folder with --data"
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
        new = Address(old.host, free_port(old.port + 1, used))
        used.add(new.port)
        yield old, new


def _new_files(
    folder: Path,
    wishes: Wishes,
    existing: Sequence[NodeConfig],
    count: int,
    security: ClusterSecurity | None,
) -> Iterator[tuple[Path, NodeFile]]:
    known = {config.node_id for config in existing}
    node_ids = [NodeId(number) for number in range(1, count + len(known) + 1) if number not in known]
    node_ids = node_ids[: count - len(existing)]
    if node_ids and security is None:
        _check_can_be_copied(folder, existing, node_ids[0])
    listen, peers = _new_addresses(wishes, existing, node_ids, count)
    shared = _shared_by(existing[0]) if existing else _shared_by_new(folder, wishes, security, count)
    voters = shared.voters or {each: str(peers[each]) for each in node_ids[: _voter_count(count)]}
    for node_id in node_ids:
        place = folder / f"node-{node_id}"
        own: dict[str, str] = {}
        peer_certificate = None
        if security is not None:
            own = security.configs(node_id, listen[node_id], shared.configs if existing else None)
            peer_certificate = str(security.files.peer_certificate_of(node_id)) if shared.peer_ca_file else None
        yield (
            place / "node.toml",
            NodeFile(
                node_id=node_id,
                data_dir=str(place / "data"),
                listen=str(listen[node_id]) if security is None else None,
                peer_listen=str(peers[node_id]),
                cluster_id=shared.cluster_id,
                cluster_secret_file=shared.cluster_secret_file,
                peer_certificate_file=peer_certificate,
                peer_ca_file=shared.peer_ca_file,
                voters=voters,
                first_user=shared.first_user,
                log_file=str(place / "node.log"),
                configs={**shared.configs, **own, **({} if existing else wishes.configs)},
            ),
        )


def _check_can_be_copied(folder: Path, existing: Sequence[NodeConfig], node_id: NodeId) -> None:
    by_hand = "listeners" if any("listeners" in config.configs for config in existing) else "certificates"
    if by_hand == "listeners" or any(config.peer_certificate_file is not None for config in existing):
        raise QuorateError(
            f"the nodes in {folder} have {by_hand} that were set up by hand, so no node can be added to them: "
            f"write a node.toml like theirs into {folder}/node-{node_id}"
        )


def _new_addresses(
    wishes: Wishes, existing: Sequence[NodeConfig], node_ids: Sequence[NodeId], count: int
) -> tuple[dict[NodeId, Address], dict[NodeId, Address]]:
    """For clients, and for peers."""
    first_port = wishes.port or min((config.listen.port for config in existing), default=DEFAULT_PORT)
    if first_port + count - 1 > LAST_PORT:
        raise QuorateError(f"--port {first_port} leaves no room for {count} nodes: choose a lower one")
    used = {config.listen.port for config in existing}
    used |= {config.peer_listen.port for config in existing if config.peer_listen is not None}
    listen = {node_id: Address(HOST, first_port + node_id - 1) for node_id in node_ids}
    for address in listen.values():
        check_free(address, "choose another --port")
        used.add(address.port)
    peers: dict[NodeId, Address] = {}
    for node_id, address in listen.items():
        peers[node_id] = Address(HOST, free_port(address.port + PEER_PORTS_ABOVE, used))
        used.add(peers[node_id].port)
    return listen, peers


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all nodes have in their files."""

    cluster_id: str
    cluster_secret_file: str | None
    peer_ca_file: str | None
    voters: Mapping[NodeId, str]
    first_user: FirstUser | None
    configs: Mapping[str, str]


def _shared_by(other: NodeConfig) -> _Shared:
    return _Shared(
        cluster_id=other.cluster_id or new_cluster_id(uuid4()),
        cluster_secret_file=other.cluster_secret_file,
        peer_ca_file=other.peer_ca_file,
        voters={voter: str(address) for voter, address in other.voters.items()},
        # It is made by those that were there at the beginning, and its password may be gone by now.
        first_user=None,
        configs=other.configs,
    )


def _shared_by_new(folder: Path, wishes: Wishes, security: ClusterSecurity | None, count: int) -> _Shared:
    if security is None and wishes.first_user is not None:
        read_password(wishes.first_user.password_file, OsOperatorFiles())  # Before anything is written.
    return _Shared(
        cluster_id=new_cluster_id(uuid4()),
        cluster_secret_file=str(folder / SECRET_FILE_NAME),
        peer_ca_file=None if security is None else str(security.files.ca_file),
        voters={},
        first_user=wishes.first_user if security is None else security.first_user,
        configs=_default_configs(count),
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
