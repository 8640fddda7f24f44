"""``quorate demo``: a cluster, a stock Kafka client, a backup on Spark whose source loses a node, and the restore."""

import socket
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from quorate.cli.interruption import interruptible
from quorate.cli.terminal import counted
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.cli.local.cluster import LocalCluster

_NODES = 3
_TOPIC = "orders"
_GROUP = "demo"
_PARTITIONS = 3
_RECORDS = 60_000


def demo() -> None:
    """Fill a cluster with a stock client, kill a leader while it is backed up on Spark, restore into another one."""
    if not all(find_spec(module) for module in ("confluent_kafka", "pyspark", "obstore", "yaml")):
        raise QuorateError("the demo needs Spark and a Kafka client: pip install 'quorate[backup]' confluent-kafka")
    with interruptible("nothing of the demo is left"):
        _show()


def _show() -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        "step", "what happened", "took", title="Quorate, a stock Kafka client and Spark", title_justify="left"
    )
    with tempfile.TemporaryDirectory(prefix="quorate-demo-") as name:
        folder = Path(name)
        started = time.monotonic()
        with _cluster(folder / "source") as source, _cluster(folder / "target") as target:
            for step, what in _steps(source, target, folder):
                took = f"{time.monotonic() - started:.2f} s"
                console.print(f"{step}: {what} ({took})")
                table.add_row(step, what, took)
                started = time.monotonic()
        table.add_row("stop", "the nodes stopped in good order", "")
    console.print(table)


def _steps(source: "LocalCluster", target: "LocalCluster", folder: Path) -> Iterator[tuple[str, str]]:
    # Only now: the client starts threads, and the nodes were forked from a process without any.
    from confluent_kafka import libversion

    from quorate.cli.demo.backup import DemoBackup
    from quorate.cli.demo.clients import StockProducer, committed_offsets, consume_as_group, create_topic, digest_of

    yield "start", f"two clusters of {_NODES} nodes; librdkafka {libversion()[0]} talks to {source.bootstrap_servers}"

    create_topic(source.bootstrap_servers, _TOPIC, _PARTITIONS)
    yield "create", f"topic {_TOPIC}, {_PARTITIONS} partitions, {_NODES} replicas"

    producer = StockProducer(source.bootstrap_servers)
    producer.fill(_TOPIC, _RECORDS)
    ends = dict(sorted(producer.ends.items()))
    yield "produce", f"{_RECORDS:,} records, idempotent, acks=all; ends {_listed(ends)}"

    consumed = consume_as_group(source.bootstrap_servers, _GROUP, _TOPIC, _RECORDS)
    yield "consume", f"{consumed:,} distinct records by group {_GROUP}, offsets committed"

    commands = DemoBackup(source, target, _TOPIC, folder)
    commands.start_backup()
    yield "kill", commands.kill_leader(producer)
    backup = commands.finish_backup()
    copied = f"{backup['record_count']:,} records, {backup['batch_bytes']:,} bytes of raw batches"
    followed = f"leaders followed {counted(backup['leaders_followed'], 'time')}"
    yield "backup", f"{copied}, {len(backup['gaps'])} gaps, {followed}, on Spark"
    yield "verify", commands.verify()

    restored = commands.restore()
    yield "restore", f"{restored['record_count']:,} records into the second cluster, on Spark"

    if digest_of(source.bootstrap_servers, _TOPIC, ends) != (
        digest := digest_of(target.bootstrap_servers, _TOPIC, ends)
    ):
        raise QuorateError("what was restored differs from what was written")
    if committed_offsets(target.bootstrap_servers, _GROUP, _TOPIC, _PARTITIONS) != ends:
        raise QuorateError(f"the group {_GROUP} does not stand where it stood")
    yield "compare", f"every record, and group {_GROUP}, as at the source: SHA-256 {digest[:16]}…"


def _cluster(folder: Path) -> "LocalCluster":
    from quorate.cli.local.cluster import LocalCluster
    from quorate.cli.local.layout import Wishes

    return LocalCluster(folder, Wishes(nodes=_NODES, port=_free_port()))


def _listed(ends: dict[int, int]) -> str:
    return ", ".join(f"{partition}: {end}" for partition, end in ends.items())


def _free_port() -> int:
    """The first of a row of ports, one for each node."""
    from quorate.cli.local.ports import is_free

    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if all(is_free(Address("127.0.0.1", port + index)) for index in range(_NODES)):
            return port
