"""``quorate cluster rebalance``: even out replicas and leaders over the nodes."""

from typing import Annotated

import typer

from quorate.cli.cluster.moves import carry_out, show_plan
from quorate.cli.cluster.options import DEFAULT_TIMEOUT_S, BootstrapOption, TimeoutOption, open_client
from quorate.cli.confirmation import YesOption, confirm
from quorate.cli.counted import counted
from quorate.cli.interruption import interruptible


def rebalance(
    bootstrap_server: BootstrapOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    yes: YesOption = False,
    max_moves: Annotated[int | None, typer.Option(min=1, help="Move the data of at most this many replicas.")] = None,
    timeout: TimeoutOption = DEFAULT_TIMEOUT_S,
) -> None:
    """Show which partitions move from where to where, and move them."""
    from quorate.cli.cluster.image import describe_image
    from quorate.kernel.ids import TopicPartition
    from quorate.metadata.core.elections import preferred_leader_imbalance
    from quorate.metadata.core.rebalancing import rebalance_plan

    with open_client(bootstrap_server, timeout) as client, interruptible("moves that have begun go on by themselves"):
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
