"""``quorate cluster status``: the nodes, the quorum, and the partitions that something is wrong with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import typer

from quorate.cli.options import DEFAULT_TIMEOUT_S, BootstrapOption, TimeoutOption, open_client
from quorate.cli.spark_options import FormatOption, OutputFormat
from quorate.cli.terminal import counted, node_list, print_table

if TYPE_CHECKING:
    from quorate.cli.cluster.description import ClusterHealth, NodeHealth, PartitionHealth

_SHOWN_PARTITIONS = 20


def status(
    bootstrap_server: BootstrapOption,
    output_format: FormatOption = OutputFormat.TEXT,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Show nodes, quorum and partitions. Exit status 0 means healthy.

    That is: a quorum leader, all nodes live and without a problem of their own, all replicas in sync.
    """
    from quorate.cli.cluster.description import examine

    with open_client(bootstrap_server, timeout) as client:
        health = examine(client)
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(health).decode())
    else:
        _show(health)
    if not health.healthy:
        raise typer.Exit(1)


def _show(health: "ClusterHealth") -> None:
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
