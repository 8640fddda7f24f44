"""What an installed package must do: ``python smoke.py native|Python [--backup]``, with that environment's Python.

A cluster of the test kit, a stock client, and with ``--backup`` the way of the records through a backup: copied,
verified, restored under another name and exported, with Spark. It imports nothing but what is installed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer

import quorate
from quorate.kernel import native
from quorate.testing import ClusterInProcess

TOPIC, RESTORED = "orders", "orders-restored"
COUNT = 3000
_DEADLINE_S = 60.0

BACKUP = """
backup_id: smoke
source: {{bootstrap_servers: [{server}], topics: {{include: [{topic}]}}}}
storage: {{url: "{store}"}}
spark: {{master: "local[2]"}}
"""
RESTORE = """
backup_id: smoke
target: {{bootstrap_servers: [{server}]}}
storage: {{url: "{store}"}}
restore: {{topics: {{include: [{topic}]}}, topic_mapping: {{{topic}: {restored}}}}}
spark: {{master: "local[2]"}}
"""

Records = set[tuple[bytes | None, bytes | None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", choices=["native", "Python"])
    parser.add_argument("--backup", action="store_true")
    options = parser.parse_args()
    check(str(native.choice).startswith(options.kernel), f"the kernel is {native.choice}")
    told = quorate_command("--version")
    check(told.splitlines() == [f"quorate {quorate.__version__}", f"kernel: {native.choice}"], told)
    with tempfile.TemporaryDirectory(prefix="quorate-smoke-") as folder, ClusterInProcess(nodes=3) as cluster:
        server = cluster.bootstrap_servers.split(",", maxsplit=1)[0]
        written = produce(cluster.bootstrap_servers)
        check(consume(cluster.bootstrap_servers, TOPIC) == written, "a consumer got what was produced")
        if options.backup:
            back_up_and_restore(Path(folder), server)
            check(consume(cluster.bootstrap_servers, RESTORED) == written, "what was restored is what was produced")
    print(f"ok: quorate {quorate.__version__}, Python {sys.version.split()[0]}, kernel {native.choice}")


def check(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"smoke: does not hold: {what}")


def produce(servers: str) -> Records:
    records: Records = {(b"key %d" % index, b"value %d" % index) for index in range(COUNT)}
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "compression.type": "lz4"})
    for key, value in records:
        producer.produce(TOPIC, value, key)
    check(producer.flush(_DEADLINE_S) == 0, "all records were acknowledged")
    return records


def consume(servers: str, topic: str) -> Records:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "smoke", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: Records = set()
    while len(found) < COUNT:
        messages = consumer.consume(COUNT, timeout=_DEADLINE_S)
        check(bool(messages), f"{len(found)} of {COUNT} records of {topic} came")
        found |= {(message.key(), message.value()) for message in messages if message.error() is None}
    consumer.close()
    return found


def back_up_and_restore(folder: Path, server: str) -> None:
    store = (folder / "store").as_uri()
    (folder / "backup.yaml").write_text(BACKUP.format(server=server, store=store, topic=TOPIC))
    restore = RESTORE.format(server=server, store=store, topic=TOPIC, restored=RESTORED)
    (folder / "restore.yaml").write_text(restore)
    quorate_command("backup", "--config", str(folder / "backup.yaml"))
    quorate_command("verify", "--storage", store, "--backup-id", "smoke")
    quorate_command("restore", "--config", str(folder / "restore.yaml"))
    table = folder / "table"
    quorate_command("export", "--to", "parquet", "--storage", store, "--backup-id", "smoke", "--output", str(table))

    import pyarrow.parquet

    rows = sum(pyarrow.parquet.ParquetFile(path).metadata.num_rows for path in table.rglob("*.parquet"))
    check(rows == COUNT, f"{rows} of {COUNT} records are in the table")


def quorate_command(*arguments: str) -> str:
    command = Path(sys.executable).parent / "quorate"
    done = subprocess.run([str(command), *arguments], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"quorate {' '.join(arguments)} ends with 0: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
