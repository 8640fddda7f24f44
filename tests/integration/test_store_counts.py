"""Counts say what they count, and a verification claims only what it has looked at."""

from pathlib import Path

import pytest

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Mode
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.spark.upkeep.verification import Inventory, take_inventory, verify_on_spark, verify_quickly
from tests.integration.test_hostile_store import quorate
from tests.spark_session import InThisProcess, QuietWatcher
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, run_backup


class Stored:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = f"file://{folder}"
        self.location = StorageLocation(self.root).below(BACKUP_ID)
        self.log = PartitionLog()
        self._runs = 0

    def back_up(self, mode: Mode = Mode.INCREMENTAL) -> None:
        self._runs += 1
        run_backup(open_storage(self.location), self.log, f"run{self._runs}", mode=mode, range_bytes=10**6)

    def listed_records(self) -> tuple[int, bool]:
        everything = quorate("list-backups", "--storage", self.root, "--format", "json").json
        one = quorate("list-backups", "--storage", self.root, "--backup-id", BACKUP_ID, "--format", "json").json
        assert everything[0]["records"] == one["records"] == sum(topic["records"] for topic in one["topics"])
        return one["records"], one["records_exact"]

    def verify(self, *options: str) -> tuple[int, str]:
        done = quorate("verify", "--storage", self.root, "--backup-id", BACKUP_ID, *options)
        return done.status, done.output.splitlines()[-1]

    def inventory(self, *, newest_only: bool = False) -> Inventory:
        found = take_inventory(ManifestCatalog(open_storage(self.location), BACKUP_ID), newest_only=newest_only)
        assert found is not None
        return found


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_markers_of_transactions_are_not_counted_as_records(stored: Stored) -> None:
    stored.log.append(5)
    stored.log.end_transaction()
    stored.log.append(2)
    stored.log.end_transaction()
    stored.back_up()

    assert stored.listed_records() == (7, True)
    assert sum(each.record_count for each in stored.inventory().segments) == 9
    assert sum(each.control_record_count for each in stored.inventory().segments) == 2


def test_records_that_a_truncation_superseded_are_not_counted(stored: Stored) -> None:
    for _ in range(4):
        stored.log.append(5, value_bytes=1)
    stored.back_up()
    stored.log.elect_unclean(10)
    stored.log.append(3)
    stored.back_up()
    assert any(each.superseded_from_offset == 10 for each in stored.inventory().segments)

    assert stored.listed_records() == (13, True)
    whole = quorate("list-backups", "--storage", stored.root, "--backup-id", BACKUP_ID).output
    assert "at most" not in whole


def test_a_count_that_only_reading_could_tell_says_that_it_is_a_bound(stored: Stored) -> None:
    """A compacted log: which of the offsets before the cut have a record is not in the manifest."""
    stored.log.append(5, value_bytes=1)
    stored.log.append(5, value_bytes=1, gap=3)
    stored.log.append(5, value_bytes=1)
    stored.back_up()
    stored.log.elect_unclean(13)
    stored.log.append(2)
    stored.back_up()

    records, is_exact = stored.listed_records()

    assert not is_exact
    assert records >= 12
    assert "at most" in quorate("list-backups", "--storage", stored.root, "--backup-id", BACKUP_ID).output


def test_verify_without_deep_does_not_claim_what_it_did_not_check(stored: Stored) -> None:
    for _ in range(3):
        stored.log.append(5)
        stored.back_up()

    status, summary = stored.verify()
    newest_only = stored.verify("--newest-only")[1]
    report = verify_quickly(open_storage(stored.location), stored.inventory(), QuietWatcher())

    assert status == 0
    assert "records" not in summary
    assert "3 objects of 3 manifests, 0 damaged" in summary, summary
    assert "no batch was opened: --deep checks each of them" in summary
    assert "3 objects of the newest manifest, 0 damaged" in newest_only
    assert report.record_count is None


def test_a_deep_verification_counts_the_records_of_what_is_sound(stored: Stored) -> None:
    stored.log.append(5)
    stored.log.end_transaction()
    stored.back_up()
    stored.log.append(4)
    stored.back_up()

    sound = verify_on_spark(InThisProcess(), stored.location, stored.inventory(), QuietWatcher())
    first, second = sorted(stored.inventory().segments, key=lambda each: each.start_offset)
    (stored.folder / BACKUP_ID / second.name).unlink()
    damaged = verify_on_spark(InThisProcess(), stored.location, stored.inventory(), QuietWatcher())

    assert (sound.record_count, sound.size_bytes) == (9, first.size_bytes + second.size_bytes)
    assert (damaged.record_count, damaged.size_bytes, len(damaged.damages)) == (5, first.size_bytes, 1)


def test_what_only_a_damaged_manifest_names_is_not_said_to_be_verified(stored: Stored) -> None:
    for _ in range(2):
        stored.log.append(5)
        stored.back_up(Mode.SNAPSHOT)
    (stored.folder / BACKUP_ID / "manifests" / "000001.json").write_bytes(b"damaged")

    status, summary = stored.verify()

    assert status == 1
    assert "1 object of 1 of 2 manifests, 1 damaged" in summary
