"""``quorate demo``: a cluster, a stock Kafka client, a backup on Spark, and what happened."""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from quorate.cli.local_cluster import LocalCluster, NodePorts
from quorate.kernel.errors import QuorateError

_NODES = 3
_TOPIC = "orders"
_PARTITIONS = 3
_RECORDS = 10_000


def demo() -> None:
    """Start a cluster in a temporary folder, fill it with a stock client, back it up on Spark, verify the backup."""
    try:
        import confluent_kafka
    except ImportError:
        raise QuorateError("the demo needs a Kafka client: pip install confluent-kafka") from None
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(
        "step", "what happened", "took", title="Quorate, a stock Kafka client and Spark", title_justify="left"
    )
    with tempfile.TemporaryDirectory(prefix="quorate-demo-") as folder:
        started = time.monotonic()
        with LocalCluster(Path(folder), [NodePorts(_free_port(), _free_port()) for _ in range(_NODES)]) as cluster:
            table.add_row("start", f"{_NODES} nodes at {cluster.bootstrap_servers}", _since(started))
            console.print(
                f"{_NODES} nodes are up at {cluster.bootstrap_servers}; "
                f"librdkafka {confluent_kafka.libversion()[0]} talks to them."
            )
            for step, what, took in chain(
                _use(cluster.bootstrap_servers), _back_up(cluster.bootstrap_servers, Path(folder))
            ):
                console.print(f"{step}: {what} ({took})")
                table.add_row(step, what, took)
        table.add_row("stop", "the nodes stopped in good order", "")
    console.print(table)


def _use(bootstrap_servers: str) -> Iterator[tuple[str, str, str]]:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    started = time.monotonic()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(_TOPIC, num_partitions=_PARTITIONS)])[_TOPIC].result()
    yield "create", f"topic {_TOPIC} with {_PARTITIONS} partitions", _since(started)

    started = time.monotonic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4"})
    offsets: dict[int, int] = {}

    def acknowledged(error: Any, message: Any) -> None:
        if error is not None:
            raise QuorateError(f"a record was not acknowledged: {error}")
        offsets[message.partition()] = max(offsets.get(message.partition(), -1), message.offset())

    for number in range(_RECORDS):
        producer.produce(_TOPIC, key=f"customer-{number % 97}", value=f"order {number}", on_delivery=acknowledged)
        producer.poll(0)
    producer.flush()
    ends = ", ".join(f"{partition}: {offset + 1}" for partition, offset in sorted(offsets.items()))
    yield "produce", f"{_RECORDS:,} records, idempotent, acks=all, lz4; ends {ends}", _since(started)

    started = time.monotonic()
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo", "auto.offset.reset": "earliest"})
    consumer.subscribe([_TOPIC])
    values: set[bytes | None] = set()
    deadline = time.monotonic() + 60
    while len(values) < _RECORDS:
        if time.monotonic() > deadline:
            raise QuorateError(f"only {len(values)} of {_RECORDS} records came back")
        values.update(message.value() for message in consumer.consume(1000, timeout=1) if message.error() is None)
    consumer.commit(asynchronous=False)
    consumer.close()
    yield "consume", f"{len(values):,} distinct records by group demo, offsets committed", _since(started)


def _back_up(bootstrap_servers: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    storage = f"file://{folder}/backups"
    config = folder / "backup.yaml"
    config.write_text(
        f"backup_id: demo\n"
        f"source: {{bootstrap_servers: {json.dumps(bootstrap_servers.split(','))}, topics: {{include: [{_TOPIC}]}}}}\n"
        f"storage: {{url: {json.dumps(storage)}}}\n"
    )
    started = time.monotonic()
    report = json.loads(_quorate("backup", "--config", str(config), "--format", "json"))
    copied = f"{report['record_count']:,} records, {report['batch_bytes']:,} bytes of raw batches"
    yield "backup", f"{copied}, {len(report['gaps'])} gaps, on Spark", _since(started)

    started = time.monotonic()
    closing = _quorate("verify", "--storage", storage, "--backup-id", "demo", "--deep").strip().splitlines()[-1]
    yield "verify", closing, _since(started)


def _quorate(*arguments: str) -> str:
    """Run a command as a user would; its output, or the sentence in which it says what is wrong."""
    done = subprocess.run([sys.executable, "-m", "quorate", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise QuorateError(f"quorate {arguments[0]} failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.2f} s"
