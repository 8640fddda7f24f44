"""A continuous backup looks after what its rounds leave, over real files and a real cluster."""

from pathlib import Path

import msgspec
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.backup.config import parse_backup_config
from quorate.backup.spark.copy.backup_run import BackupRuns, client_config
from quorate.backup.spark.upkeep.maintenance import FAN_IN, open_maintenance
from quorate.backup.spark.upkeep.maintenance import QuietWatcher as Nobody
from tests.backup_commands import Backups, consume, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.spark_session import InThisProcess, QuietWatcher

ROUNDS = FAN_IN + 4


def test_small_objects_of_rounds_become_few_and_the_records_stay(tmp_path: Path) -> None:
    with QuorateNode.start(tmp_path / "node", settings={"durability": "os"}) as node:
        backups = Backups(tmp_path, node.bootstrap)
        create_topics(node.bootstrap, NewTopic("orders", 1))
        config = backups.write_config(backup={"mode": "continuous"}, maintenance={"keep_minutes": 0})
        parsed = parse_backup_config(config.read_text(), {}, config.name)
        catalog, told = backups.catalog(), list[str]()
        runs = BackupRuns(parsed, client_config(parsed), catalog, InThisProcess)
        for number in range(ROUNDS):
            produce(node.bootstrap, "orders", 5, first=5 * number)
            runs.run(QuietWatcher())
        assert len(backups.object_paths()) == ROUNDS
        maintenance = open_maintenance(parsed, catalog, InThisProcess, told.append)
        now_ms = backups.manifest().captured_ms + 10_000

        assert maintenance.run_if_due(Nobody(), now_ms=now_ms) is None, "the first comes an interval later"
        done = maintenance.run_if_due(Nobody(), now_ms=now_ms + 600_000)

        assert done is not None
        assert (done.merged, done.pruned, done.deleted, done.problem) == (ROUNDS, ROUNDS, ROUNDS, None)
        assert told == []
        assert len(backups.object_paths()) == 1
        assert backups.records("orders", 0) == consume(node.bootstrap, "orders", 0)
        assert backups.verify().status == 0
        produce(node.bootstrap, "orders", 5, first=1000)
        runs.run(QuietWatcher())
        assert backups.records("orders", 0) == consume(node.bootstrap, "orders", 0)


def test_what_goes_wrong_is_told_and_stops_no_round(tmp_path: Path) -> None:
    backups = Backups(tmp_path, "127.0.0.1:9")
    parsed = parse_backup_config(backups.write_config(backup={"mode": "continuous"}).read_text(), {}, "backup.yaml")
    maintenance = open_maintenance(parsed, backups.catalog(), InThisProcess, lambda line: None)

    done = maintenance.run(Nobody(), now_ms=1)

    assert done.problem == f"there is no backup nightly in {parsed.location.url}"
    off = msgspec.structs.replace(parsed.maintenance, interval_ms=None)
    never = open_maintenance(msgspec.structs.replace(parsed, maintenance=off), backups.catalog(), InThisProcess, print)
    assert [never.run_if_due(Nobody(), now_ms=now_ms) for now_ms in (0, 10**15)] == [None, None]
