"""``quorate cluster rebalance``: even out replicas and leaders over the nodes; and how a plan is carried out."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.interruption import interruptible
from quorate.cli.options import DEFAULT_TIMEOUT_S, BootstrapOption, CommandConfigOption, TimeoutOption, open_client
from quorate.cli.terminal import YesOption, confirm, counted, node_list
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError

if TYPE_CHECKING:
    from quorate.client.kafka_client import KafkaClient
    from quorate.kernel.ids import TopicPartition
    from quorate.metadata.core.commands import PartitionReassignment
    from quorate.metadata.core.image import MetadataImage

_LOOK_INTERVAL_S = 0.1
_SAY_INTERVAL_S = 5.0


def rebalance(  # noqa: PLR0917 - typer calls it by name
    bootstrap_server: BootstrapOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: YesOption = False,
    max_moves: Annotated[int | None, typer.Option(min=1, help="Move the data of at most this many replicas.")] = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
    command_config: CommandConfigOption = None,
) -> None:
    """Show which partitions move from where to where, and move them."""
    from quorate.cli.cluster.description import describe_image
    from quorate.kernel.ids import TopicPartition
    from quorate.metadata.core.elections import preferred_leader_imbalance
    from quorate.metadata.core.rebalancing import rebalance_plan

    with (
        open_client(bootstrap_server, timeout, command_config) as client,
        interruptible("moves that have begun go on by themselves"),
    ):
        image = describe_image(client)
        plan = rebalance_plan(image, max_moves=max_moves)
        if plan:
            show_plan(image, plan)
            print(f"{counted(len(plan), 'partition')} to change")
        else:
            print("the replicas are even")
        if dry_run:
            return
        if plan:
            confirm("Go on?", yes=yes)
            carry_out(client, plan)
        elsewhere = [
            TopicPartition(name.topic, name.partition) for name in preferred_leader_imbalance(describe_image(client))
        ]
        if elsewhere:
            late = client.reassignments.elect_preferred_leaders(elsewhere)
            print(f"{counted(len(elsewhere) - len(late), 'partition')} have their preferred leader again")


def show_plan(image: "MetadataImage", plan: "Sequence[PartitionReassignment]") -> None:
    for move in plan:
        before = image.partition_replicas(move.topic, move.partition)
        print(f"{move.topic}-{move.partition}: {node_list(before)} -> {node_list(move.replicas or ())}")


def carry_out(client: "KafkaClient", plan: "Sequence[PartitionReassignment]") -> None:
    """Ask for the moves and return when all are done; they go on by themselves if the command is stopped."""
    from quorate.kernel.ids import TopicPartition

    names = [TopicPartition(move.topic, move.partition) for move in plan]
    try:
        client.reassignments.alter({name: move.replicas for name, move in zip(names, plan, strict=True)})
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        raise QuorateError("replicas moved while the plan was made: run the command again") from error
    wait_for_moves(client, names)


def wait_for_moves(client: "KafkaClient", names: "Sequence[TopicPartition]") -> None:
    moving, last_said = set(names), 0.0
    while moving:
        moving &= set(client.reassignments.ongoing())
        if moving and time.monotonic() - last_said >= _SAY_INTERVAL_S:
            print(f"{len(names) - len(moving)} of {counted(len(names), 'partition')} moved", flush=True)
            last_said = time.monotonic()
        if moving:
            time.sleep(_LOOK_INTERVAL_S)
    print(f"{counted(len(names), 'partition')} moved", flush=True)
