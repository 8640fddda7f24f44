"""``quorate cluster add-node`` and ``remove-node``: nodes that come and nodes that go.

A new node's file is written from what the cluster says of itself, and the node run. A node that goes is emptied, taken
out of the quorum and off the list of brokers.
"""

import sys
import threading
import time
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.cluster.rebalance import carry_out, show_plan, wait_for_moves
from quorate.cli.interruption import interruptible
from quorate.cli.local.node_files import NodeFile, make_private_folder, write_private
from quorate.cli.options import DEFAULT_TIMEOUT_S, BootstrapOption, TimeoutOption, open_client
from quorate.cli.terminal import YesOption, confirm, node_list
from quorate.kernel.address import Address, parse_address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient

#: Said by each node for itself.
_OWN_CONFIGS = frozenset({"node.id", "broker.id", "log.dirs", "listeners", "advertised.listeners", "broker.rack"})
#: A node that hears of the removal later than this is slow or cut off; it will not be waited for.
_ALL_KNOW_WITHIN_MS = 5_000
#: How often it is emptied, where it gets replicas meanwhile or those who are asked have not heard of some.
_DRAINS = 10
_BETWEEN_DRAINS_S = 0.5


def add_node(  # noqa: PLR0917 - typer calls it by name
    bootstrap_server: BootstrapOption,
    node_id: Annotated[int, typer.Option(min=0, help="An id that no other node has.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients.")],
    peer_listen: Annotated[str, typer.Option(help="HOST:PORT for the other nodes.")],
    data: Annotated[Path, typer.Option(help="The folder for node.toml and the node's data.")],
    voter: Annotated[bool, typer.Option("--voter", help="Give it a vote in the quorum once it has caught up.")] = False,
    rack: Annotated[str | None, typer.Option(help="Replicas are spread over racks.")] = None,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write node.toml and stop.")] = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Set up a node for a running cluster and run it here until Ctrl-C. It joins by itself, as a learner."""
    addresses = parse_address(listen), parse_address(peer_listen)
    if voter and write_only:
        raise QuorateError("--voter needs a node that runs: leave out --write-only, or promote the node later")
    path = data.absolute() / "node.toml"
    if path.exists():
        raise QuorateError(f"{path} exists: start that node with quorate serve --config {path}")
    with open_client(bootstrap_server, timeout) as client:
        file = _plan(
            client,
            NodeId(node_id),
            listen=listen,
            peer_listen=peer_listen,
            data_dir=str(path.parent / "data"),
            rack=rack,
        )
    if not write_only:
        _check_are_free(*addresses)
    _write(path, file)
    if write_only:
        print(f"start it with: quorate serve --config {path}")
        return
    _run(path, NodeId(node_id), bootstrap_server, file.cluster_id, is_voter=voter, timeout=timeout)


def _check_are_free(listen: Address, peer_listen: Address) -> None:
    """Before anything is written: else the next attempt, with another port, would find a node.toml in its way."""
    from quorate.transport.reserved_address import ReservedAddress

    with ReservedAddress(listen), ReservedAddress(peer_listen, "for peers"):
        pass


def _plan(
    client: "KafkaClient", node_id: NodeId, *, listen: str, peer_listen: str, data_dir: str, rack: str | None
) -> NodeFile:
    known = client.brokers.registered()
    if node_id in known.brokers:
        raise QuorateError(f"the cluster has a node {node_id} already, at {known.brokers[node_id].address}")
    quorum = client.quorum.describe()
    voters = {voter: str(quorum.addresses[voter]) for voter in quorum.voters if voter in quorum.addresses}
    if not voters:
        raise QuorateError("no voter of the cluster has a peer_listen in its node.toml: without one nobody can join it")
    return NodeFile(
        node_id=node_id,
        data_dir=data_dir,
        listen=listen,
        peer_listen=peer_listen,
        cluster_id=known.cluster_id,
        voters=voters,
        rack=rack,
        configs=_configs_of_the_others(client, min(known.brokers)),
    )


def _configs_of_the_others(client: "KafkaClient", node_id: NodeId) -> dict[str, str]:
    """What a node's file says about the cluster as a whole, such as the default replication factor."""
    from quorate.client.admin.configs import ConfigResource
    from quorate.protocol.codes import ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.BROKER, str(node_id))
    return {
        name: entry.value
        for name, entry in client.configs.describe([resource])[resource].items()
        if entry.source is ConfigSource.STATIC_BROKER and entry.value is not None and name not in _OWN_CONFIGS
    }


def _write(path: Path, file: NodeFile) -> None:
    from quorate.broker.config import parse_node_config

    parse_node_config(file.text())
    try:
        make_private_folder(path.parent)
        write_private(path, file.text())
    except OSError as error:
        raise QuorateError(f"cannot write {path}: {error.strerror}") from None
    print(f"wrote {path}", flush=True)


def _run(
    path: Path, node_id: NodeId, bootstrap_server: str, cluster_id: str, *, is_voter: bool, timeout: float
) -> None:
    from quorate.cli.serve import run_from_file

    def on_ready() -> None:
        if is_voter:
            threading.Thread(
                target=_promote, args=(bootstrap_server, node_id, cluster_id, timeout), daemon=True
            ).start()

    run_from_file(path, on_ready)


def _promote(bootstrap_server: str, node_id: NodeId, cluster_id: str, timeout: float) -> None:
    try:
        with open_client(bootstrap_server, timeout) as client:
            client.quorum.add_voter(node_id, cluster_id)
    except QuorateError as error:
        print(f"quorate: node {node_id} stays a learner: {error}", file=sys.stderr, flush=True)
    else:
        print(f"node {node_id} is a voter", flush=True)


def remove_node(
    bootstrap_server: BootstrapOption,
    node_id: Annotated[int, typer.Option(min=0, help="The node that is to go.")],
    force: Annotated[
        bool, typer.Option("--force", help="Give up the replicas that it holds, instead of moving them elsewhere.")
    ] = False,
    yes: YesOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Move a node's partitions to the others, then remove it for good. Its process ends by itself."""
    node = NodeId(node_id)
    with open_client(bootstrap_server, timeout) as client, interruptible("the node is still part of the cluster"):
        known = client.brokers.registered()
        quorum = client.quorum.describe()
        if node not in known.brokers and node not in quorum.members:
            raise QuorateError(f"the cluster has no node {node}")
        if quorum.voters == [node]:
            raise QuorateError(f"node {node} is the only voter of the quorum: promote another one first")
        confirm(_question(node, known.brokers, force=force), yes=yes)
        if node in known.brokers and not force:
            _empty(client, node)
        # The quorum first: for that the node's own vote may still be needed.
        client.quorum.remove_member(node, known.cluster_id)
        client.brokers.unregister(node, even_with_replicas=force)
        client.quorum.remove_member(node, known.cluster_id)  # It still followed the log, as every broker does.
        # The node itself too, which ends when it hears: whoever looks next, wherever, sees the node gone.
        unaware = client.brokers.wait_until_forgotten(node, known.brokers.values(), _ALL_KNOW_WITHIN_MS)
    print(f"removed node {node}", flush=True)
    if unaware:
        print(f"not yet known to {node_list(unaware)}", flush=True)


def _question(node: NodeId, brokers: Container[NodeId], *, force: bool) -> str:
    if node not in brokers:
        return f"Take node {node} out of the quorum?"
    what = "give up the replicas that it holds" if force else "move its replicas to the other nodes"
    return f"Remove node {node} for good and {what}?"


def _empty(client: "KafkaClient", node: NodeId) -> None:
    for _ in range(_DRAINS):
        _drain(client, node)
        if client.brokers.is_empty(node):
            return
        time.sleep(_BETWEEN_DRAINS_S)
    raise QuorateError(f"node {node} is given replicas again and again: run the command again")


def _drain(client: "KafkaClient", node: NodeId) -> None:
    from quorate.cli.cluster.description import describe_image
    from quorate.kernel.ids import TopicPartition
    from quorate.metadata.core.rebalancing import drain_plan

    image = describe_image(client)
    plan = drain_plan(image, node)
    leaving = [
        TopicPartition(name.topic, name.partition)
        for name, state in image.hosted_partitions(node)
        if node in state.removing_replicas
    ]
    if plan:
        show_plan(image, plan)
        carry_out(client, plan)
    if leaving:
        wait_for_moves(client, leaving)
