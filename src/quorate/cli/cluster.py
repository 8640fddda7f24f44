"""``quorate cluster``: the commands for those who run a cluster, joined."""

import typer

from quorate.cli import cluster_add_node, cluster_doctor, cluster_rebalance, cluster_remove_node, cluster_status

app = typer.Typer(help="Look after a running cluster: its nodes, its quorum, its partitions.", no_args_is_help=True)
app.command("status")(cluster_status.status)
app.command("doctor")(cluster_doctor.doctor)
app.command("add-node")(cluster_add_node.add_node)
app.command("remove-node")(cluster_remove_node.remove_node)
app.command("rebalance")(cluster_rebalance.rebalance)
