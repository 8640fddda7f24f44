"""``quorate demo``: a node, a stock Kafka client, and what happened between them."""

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quorate.cli.local_cluster import LocalCluster
from quorate.kernel.errors import QuorateError

_TOPIC = "orders"
_PARTITIONS = 3
_RECORDS = 10_000


def demo() -> None:
    """Start a node in a temporary folder, use it with a stock Kafka client, and show what happened."""
    try:
        import confluent_kafka
    except ImportError:
        raise QuorateError("the demo needs a Kafka client: pip install confluent-kafka") from None
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("step", "what happened", "took", title="Quorate and a stock Kafka client", title_justify="left")
    with tempfile.TemporaryDirectory(prefix="quorate-demo-") as folder:
        started = time.monotonic()
        with LocalCluster(Path(folder), [_free_port()]) as cluster:
            node = cluster.nodes[0]
            table.add_row("start", f"node {node.node_id} at {node.address}, pid {node.process.pid}", _since(started))
            console.print(f"A node is up at {node.address}; librdkafka {confluent_kafka.libversion()[0]} talks to it.")
            for step, what, took in _use(cluster.bootstrap_servers):
                table.add_row(step, what, took)
        table.add_row("stop", "the node stopped in good order", "")
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.2f} s"
