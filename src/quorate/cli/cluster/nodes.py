"""``quorate cluster status``, ``add-node`` and ``remove-node``: how the nodes are, those that come and those that go.

A new node's file is written from what the cluster says of itself, and the node run. A node that goes is emptied, taken
out of the quorum and off the list of brokers.
"""

import sys
import threading
import time
from collections.abc import Callable, Container, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from quorate.cli.cluster.new_node import CertificateOption, PeerFiles, check_peer_files, configs_like
from quorate.cli.cluster.rebalance import carry_out, show_plan, wait_for_moves
from quorate.cli.interruption import interruptible
from quorate.cli.local.node_files import NodeFile, make_private_folder, write_private
from quorate.cli.options import DEFAULT_TIMEOUT_S, BootstrapOption, CommandConfigOption, TimeoutOption, open_client
from quorate.cli.spark import FormatOption, OutputFormat
from quorate.cli.terminal import YesOption, confirm, counted, node_list, print_table, tell
from quorate.kernel.address import Address, parse_address
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId

if TYPE_CHECKING:
    from quorate.cli.cluster.description import ClusterHealth, NodeHealth, PartitionHealth
    from quorate.client.kafka_client import KafkaClient

_SHOWN_PARTITIONS = 20
#: A node that hears of the removal later than this is slow or cut off; it will not be waited for.
_ALL_KNOW_WITHIN_MS = 5_000
#: How often it is emptied, where it gets replicas meanwhile or those who are asked have not heard of some.
_DRAINS = 10
_BETWEEN_DRAINS_S = 0.5


def status(
    bootstrap_server: BootstrapOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Show nodes, quorum and partitions. Exit status 0 means healthy.

    That is: a quorum leader, all nodes live and without a problem of their own, all replicas in sync.
    """
    from quorate.cli.cluster.description import examine

    with open_client(bootstrap_server, timeout, command_config) as client:
        health = examine(client)
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(health).decode())
    else:
        _show_health(health)
    if not health.healthy:
        raise typer.Exit(1)


def _show_health(health: "ClusterHealth") -> None:
    print(
        f"cluster {health.cluster_id}: {counted(health.topic_count, 'topic')}, "
        f"{counted(health.partition_count, 'partition')}"
    )
    quorum = health.quorum
    if quorum is not None:
        print(
            f"quorum: leader {quorum.leader}, term {quorum.term}, voters {node_list(quorum.voters)}, "
            f"{quorum.high_watermark} entries agreed on, the slowest voter {quorum.max_voter_lag} behind"
        )
    print()
    print_table(
        ["node", "state", "quorum", "behind", "clients", "peers", "rack", "leads", "replicas"],
        [_node_row(node) for node in health.nodes],
    )
    _show_partitions("without a leader", health.leaderless)
    _show_partitions("with replicas out of sync", health.under_replicated)
    _show_partitions("below min.insync.replicas", health.under_min_isr)
    _show_partitions("being moved", health.reassigning)
    print()
    for node in health.nodes:
        for sentence in node.information:
            print(f"node {node.node_id}: {sentence}")
    for problem in health.problems:
        print(f"problem: {problem}")
    print("healthy" if health.healthy else "not healthy", flush=True)


def _node_row(node: "NodeHealth") -> list[object]:
    known = (node.quorum_role, node.metadata_lag, node.address, node.peer_address, node.rack)
    return [
        node.node_id,
        node.state,
        *("-" if cell is None else cell for cell in known),
        node.leaders,
        node.replicas,
    ]


def _show_partitions(what: str, partitions: "Sequence[PartitionHealth]") -> None:
    if not partitions:
        return
    print(f"\n{counted(len(partitions), 'partition')} {what}:")
    for each in partitions[:_SHOWN_PARTITIONS]:
        leader = "none" if each.leader is None else each.leader
        moving = (
            f", adding {node_list(each.adding)}, removing {node_list(each.removing)}"
            if each.adding or each.removing
            else ""
        )
        print(
            f"  {each.topic}-{each.partition}: leader {leader}, replicas {node_list(each.replicas)}, "
            f"in sync {node_list(each.isr)}{moving}"
        )
    if len(partitions) > _SHOWN_PARTITIONS:
        print(f"  and {len(partitions) - _SHOWN_PARTITIONS} more (--format json has all)")


def add_node(  # noqa: PLR0917 - typer calls it by name
    node_id: Annotated[int, typer.Option(min=0, help="An id that no other node has.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients.")],
    peer_listen: Annotated[str, typer.Option(help="HOST:PORT for the other nodes.")],
    data: Annotated[Path, typer.Option(help="The folder for node.toml and the node's data.")],
    bootstrap_server: BootstrapOption = None,
    voter: Annotated[bool, typer.Option("--voter", help="Give it a vote in the quorum once it has caught up.")] = False,
    cluster_secret_file: Annotated[
        Path | None,
        typer.Option(help="What this key names in the node.toml of the others: a copy of that file on this machine."),
    ] = None,
    peer_certificate_file: Annotated[
        Path | None,
        typer.Option(help="Where nodes have certificates: the node's own key and certificates, in one PEM file."),
    ] = None,
    peer_ca_file: Annotated[
        Path | None, typer.Option(help="What this key names in the node.toml of the others: a copy of that file.")
    ] = None,
    certificate_file: CertificateOption = None,
    rack: Annotated[str | None, typer.Option(help="Replicas are spread over racks.")] = None,
    write_only: Annotated[bool, typer.Option("--write-only", help="Write node.toml and stop.")] = False,
    peers_unauthenticated: Annotated[
        bool, typer.Option("--peers-unauthenticated", help="The cluster has no secret and no certificates.")
    ] = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Set up a node for a running cluster and run it here until Ctrl-C. It joins by itself, as a learner."""
    addresses = parse_address(listen), parse_address(peer_listen)
    if voter and write_only:
        raise QuorateError("--voter needs a node that runs: leave out --write-only, or promote the node later")
    peer_files = check_peer_files(
        NodeId(node_id), cluster_secret_file, peer_certificate_file, peer_ca_file, is_without=peers_unauthenticated
    )
    path = data.absolute() / "node.toml"
    if path.exists():
        raise QuorateError(f"{path} exists: start that node with quorate serve --config {path}")
    connect = partial(open_client, bootstrap_server, timeout, command_config)
    with connect() as client:
        file = _plan_file(
            client,
            NodeId(node_id),
            listen=listen,
            peer_listen=peer_listen,
            data_dir=str(path.parent / "data"),
            peer_files=peer_files,
            certificate_file=certificate_file,
            rack=rack,
        )
    if not write_only:
        _check_are_free(*addresses)
    _write_file(path, file)
    if write_only:
        print(f"start it with: quorate serve --config {path}")
        return
    promote = partial(_promote, connect, NodeId(node_id), file.cluster_id)
    _run_node(path, promote if voter else None)


def _check_are_free(listen: Address, peer_listen: Address) -> None:
    """Before anything is written: else the next attempt, with another port, would find a node.toml in its way."""
    from quorate.transport.reserved_address import ReservedAddress

    with ReservedAddress(listen), ReservedAddress(peer_listen, "for peers"):
        pass


def _plan_file(
    client: "KafkaClient",
    node_id: NodeId,
    *,
    listen: str,
    peer_listen: str,
    data_dir: str,
    peer_files: PeerFiles,
    certificate_file: Path | None,
    rack: str | None,
) -> NodeFile:
    known = client.brokers.registered()
    if node_id in known.brokers:
        raise QuorateError(f"the cluster has a node {node_id} already, at {known.brokers[node_id].address}")
    quorum = client.quorum.describe()
    voters = {voter: str(quorum.addresses[voter]) for voter in quorum.voters if voter in quorum.addresses}
    if not voters:
        raise QuorateError("no voter of the cluster has a peer_listen in its node.toml: without one nobody can join it")
    other = min(known.brokers)
    configs, secrets = configs_like(client, other, listen, certificate_file)
    if secrets:
        tell(f"node {other} does not tell its {', '.join(secrets)}: copy that from its node.toml")
    return NodeFile(
        node_id=node_id,
        data_dir=data_dir,
        listen=None if "listeners" in configs else listen,
        peer_listen=peer_listen,
        cluster_id=known.cluster_id,
        cluster_secret_file=peer_files.secret,
        peer_certificate_file=peer_files.certificate,
        peer_ca_file=peer_files.authorities,
        voters=voters,
        rack=rack,
        configs=configs,
    )


def _write_file(path: Path, file: NodeFile) -> None:
    from quorate.broker.config import parse_node_config

    parse_node_config(file.text())
    try:
        make_private_folder(path.parent)
        write_private(path, file.text())
    except OSError as error:
        raise QuorateError(f"cannot write {path}: {error.strerror}") from None
    print(f"wrote {path}", flush=True)


def _run_node(path: Path, promote: Callable[[], None] | None) -> None:
    from quorate.cli.serve import run_from_file

    def on_ready() -> None:
        if promote is not None:
            threading.Thread(target=promote, daemon=True).start()

    run_from_file(path, on_ready)


def _promote(connect: "Callable[[], KafkaClient]", node_id: NodeId, cluster_id: str) -> None:
    try:
        with connect() as client:
            client.quorum.add_voter(node_id, cluster_id)
    except QuorateError as error:
        print(f"quorate: node {node_id} stays a learner: {error}", file=sys.stderr, flush=True)
    else:
        print(f"node {node_id} is a voter", flush=True)


def remove_node(  # noqa: PLR0917 - typer calls it by name
    node_id: Annotated[int, typer.Option(min=0, help="The node that is to go.")],
    bootstrap_server: BootstrapOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Give up the replicas that it holds, instead of moving them elsewhere.")
    ] = False,
    yes: YesOption = False,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Move a node's partitions to the others, then remove it for good. Its process ends by itself."""
    node = NodeId(node_id)
    with (
        open_client(bootstrap_server, timeout, command_config) as client,
        interruptible("the node is still part of the cluster"),
    ):
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
