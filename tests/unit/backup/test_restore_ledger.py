"""What is kept of a restore is found again, whatever killed processes left beside it."""

from pathlib import Path

from quorate.backup.restore_ledger import GroupSnapshot, RestoreLedger
from quorate.backup.storage import open_storage
from quorate.backup.storage_url import StorageLocation


def test_what_a_killed_process_left_half_written_is_no_snapshot_of_a_group(tmp_path: Path) -> None:
    ledger = RestoreLedger(open_storage(StorageLocation(f"file://{tmp_path}")))
    ledger.put_group_snapshot("r-1", GroupSnapshot(group="readers", offsets=[]))
    (written,) = (tmp_path / "r-1" / "groups-before").iterdir()
    written.with_name(f"{written.name}.0123abcd.partial").write_bytes(b"")

    assert [each.group for each in ledger.group_snapshots("r-1")] == ["readers"]
