"""``quorate cluster remove-node``: empty a node, take it out of the quorum and off the list of brokers."""

import time
from collections.abc import Container
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.cluster.moves import carry_out, show_plan, wait_for_moves
from quorate.cli.cluster.options import DEFAULT_TIMEOUT_S, BootstrapOption, TimeoutOption, node_list, open_client
from quorate.cli.confirmation import YesOption, confirm
from quorate.cli.interruption import interruptible
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient

#: A node that hears of the removal later than this is slow or cut off; it will not be waited for.
_ALL_KNOW_WITHIN_MS = 5_000
#: How often it is emptied, where it gets replicas meanwhile or those who are asked have not heard of some.
_DRAINS = 10
_BETWEEN_DRAINS_S = 0.5


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
    from quorate.cli.cluster.image import describe_image
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
