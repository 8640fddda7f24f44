"""``quorate export`` as users type it: one that is killed and run again."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.backup_commands import BACKUP_ID, QUORATE, Backups, create_topics, produce, run_quorate
from tests.eventually import eventually
from tests.peers.quorate_node import QuorateNode

pytest.importorskip("pyspark")

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
RECORDS = 60_000


@pytest.mark.heavy
@pytest.mark.skipif(not IS_HEAVY, reason="starts Spark four times; set QUORATE_HEAVY=1")
def test_export_of_a_backup_that_is_killed_is_whole_after_the_next_run(tmp_path: Path) -> None:
    import pyarrow.dataset

    with QuorateNode.start(tmp_path / "node", settings={"durability": "os"}) as node:
        create_topics(node.bootstrap, NewTopic("orders", 3))
        produce(node.bootstrap, "orders", RECORDS, value_size=1000)
        backups = Backups(tmp_path, node.bootstrap)
        assert backups.backup().status == 0
    table = tmp_path / "table"
    source = ("--storage", backups.url, "--backup-id", BACKUP_ID, "--option", "max_bytes_per_task=1000000")
    command = ["export", "--output", str(table), *source]
    process = subprocess.Popen([str(QUORATE), *command], start_new_session=True)
    eventually((table / "_temporary").exists, "the first task to write", within_s=120)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (table / "_SUCCESS").exists()

    done = run_quorate(*command, "--format", "json")

    assert done.status == 0, done
    assert done.json["record_count"] == RECORDS
    rows = pyarrow.dataset.dataset(table, partitioning="hive", exclude_invalid_files=True).to_table(columns=["key"])
    assert len({bytes(key) for key in rows.column("key").to_pylist()}) == len(rows) == RECORDS
