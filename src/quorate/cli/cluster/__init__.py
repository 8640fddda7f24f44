"""``quorate cluster``: the commands for those who run a cluster, joined."""

import typer

from quorate.cli.cluster import add_node as cluster_add_node
from quorate.cli.cluster import rebalance as cluster_rebalance
from quorate.cli.cluster import remove_node as cluster_remove_node
from quorate.cli.cluster import status as cluster_status
from quorate.cli.doctor import command as cluster_doctor

app = typer.Typer(help="Look after a running cluster: its nodes, its quorum, its partitions.", no_args_is_help=True)
app.command("status")(cluster_status.status)
app.command("doctor")(cluster_doctor.doctor)
app.command("add-node")(cluster_add_node.add_node)
app.command("remove-node")(cluster_remove_node.remove_node)
app.command("rebalance")(cluster_rebalance.rebalance)
