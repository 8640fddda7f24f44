"""What is kept of a restore is found again, whatever killed processes left beside it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cramjam import zstd

from quorate.backup.errors import BackupError
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.objects.stored_documents import DamagedDocument, encode_sealed
from quorate.backup.restore.batches import Span
from quorate.backup.restore.ledger import GroupSnapshot, RestoreDone, RestoreLedger
from quorate.backup.restore.plan import MapSource, RestorePlan
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from tests.unit.backup.memory_storage import MemoryStorage
from tests.unit.backup.retained_backups import RetainedBackup


def test_what_a_killed_process_left_half_written_is_no_snapshot_of_a_group(tmp_path: Path) -> None:
    ledger = RestoreLedger(open_storage(StorageLocation(f"file://{tmp_path}")))
    ledger.put_group_snapshot("r-1", GroupSnapshot(group="readers", offsets=[]))
    (written,) = (tmp_path / "r-1" / "groups-before").iterdir()
    written.with_name(f"{written.name}.0123abcd.partial").write_bytes(b"")

    assert [each.group for each in ledger.group_snapshots("r-1")] == ["readers"]


RESTORE = "ab-1"
TOPIC = TopicName("orders")
MAP = {PartitionIndex(0): [MapSource(PartitionIndex(0), [Span(Offset(0), 5)])]}


def filled() -> tuple[MemoryStorage, RestoreLedger, RestorePlan]:
    """A restore of which everything is stored that can be."""
    backup = RetainedBackup()
    backup.grow(1)
    backup.begin_restore(1)
    (restore_id,) = backup.reading
    plan = backup.restores.plan(restore_id)
    storage = MemoryStorage()
    ledger = RestoreLedger(storage)
    ledger.put_plan(RESTORE, plan)
    ledger.put_topic_ids(RESTORE, {})
    ledger.put_offset_map(RESTORE, plan.map_id, TOPIC, MAP)
    ledger.put_group_snapshot(RESTORE, GroupSnapshot(group="readers", offsets=[]))
    ledger.put_written(RESTORE)
    ledger.put_done(RESTORE, RestoreDone(finished_ms=1, record_count=1))
    ledger.put_abandoned(RESTORE)
    return storage, ledger, plan


def test_what_is_stored_of_a_restore_is_found_again_and_is_sound() -> None:
    _, ledger, plan = filled()

    assert ledger.plan(RESTORE) == plan
    assert ledger.topic_ids(RESTORE) == {}
    assert ledger.offset_map(RESTORE, plan.map_id, TOPIC) == MAP
    assert ledger.damages() == {}


def test_every_document_of_a_restore_with_a_flipped_bit_is_named_with_what_to_do() -> None:
    names = sorted(filled()[0].contents)
    assert len(names) == 7
    for name in names:
        storage, ledger, _ = filled()
        content = bytearray(storage.contents[name])
        content[len(content) // 2] ^= 1
        storage.store(name, bytes(content))

        ((named, message),) = ledger.damages().items()

        assert named == name
        assert f"{name} is damaged: it does not match its SHA-256; to start over delete" in message
        assert f"--ignore-restore {RESTORE}" in message


def test_a_prune_can_go_on_beside_a_damaged_plan_that_is_ignored() -> None:
    storage = MemoryStorage()
    ledger = RestoreLedger(storage)
    storage.store(f"{RESTORE}/plan.json", b"{}")

    with pytest.raises(DamagedDocument, match=f"--ignore-restore {RESTORE}"):
        ledger.unfinished()
    assert ledger.unfinished([RESTORE]) == {}


PLANS: dict[str, Callable[[dict[str, Any]], object]] = {
    "format version 1": lambda plan: plan.update(format_version=1),
    "a manifest of 10^18": lambda plan: plan.update(manifest_number=10**18),
    "a map that leads out": lambda plan: plan.update(map_id="../../x"),
    "a producer id of 2^63": lambda plan: plan.update(producer_id=2**63),
    "a topic that leads out": lambda plan: plan["topics"][0].update(name="../../x"),
    "a source that leads out": lambda plan: plan["topics"][0].update(source="/etc"),
    "one topic twice": lambda plan: plan["topics"].append(plan["topics"][0]),
    "partitions that it does not have": lambda plan: plan["topics"][0].update(partition_count=3),
    "10^18 partitions": lambda plan: plan["topics"][0].update(partition_count=10**18),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_that_no_restore_has_made_is_one_sentence(kind: str) -> None:
    storage, ledger, plan = filled()
    document = msgspec.to_builtins(plan) | {"topics": [TARGET_TOPIC | {}]}
    storage.store(f"{RESTORE}/plan.json", sealed(document))
    assert ledger.plan(RESTORE).topics[0].name == TOPIC
    PLANS[kind](document)
    storage.store(f"{RESTORE}/plan.json", sealed(document))

    with pytest.raises(DamagedDocument, match=r"plan\.json is damaged: [^\n]+$"):
        ledger.plan(RESTORE)
    assert list(ledger.damages()) == [f"{RESTORE}/plan.json"]


TARGET_TOPIC = {
    "source": TOPIC,
    "source_topic_id": "00000000-0000-0000-0000-0000000000a1",
    "generation": 1,
    "name": TOPIC,
    "partition_count": 1,
    "is_rehashed": False,
    "max_batch_bytes": 1000,
    "configs": {},
    "batch_bytes": 10,
    "lost_offsets": 0,
    "missing_partitions": 0,
    "unfinished_transactions": 0,
    "partitions": [{"partition": 0, "sources": [{"partition": 0, "segment_counts": [1]}]}],
}


def sealed(document: dict[str, Any]) -> bytes:
    return encode_sealed(msgspec.defstruct("Document", list(document))(**document))


MAPS: dict[str, Any] = {
    "a bomb": zstd.compress(bytes(2**30), level=1),
    "no msgpack": zstd.compress(b"\xc1"),
    "no zstd": b"abc",
    "a partition of 10^9": zstd.compress(msgspec.msgpack.encode({10**9: []})),
    "an offset below 0": zstd.compress(msgspec.msgpack.encode({0: [(0, [(-1, 1)])]})),
    "nested too deeply": zstd.compress(b"\x91" * 1_000_000),
}


@pytest.mark.parametrize("kind", MAPS)
def test_an_offset_map_that_no_restore_has_made_is_one_sentence(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate.backup.restore.ledger._MAX_MAP_BYTES", 16 * 1024 * 1024)
    storage, ledger, plan = filled()
    name = next(each for each in storage.contents if "offset-map" in each)
    content = bytes(MAPS[kind])
    storage.store(name, hashlib.sha256(content).digest() + content)

    with pytest.raises(DamagedDocument, match=r"msgpack\.zst is damaged: [^\n]+$"):
        ledger.offset_map(RESTORE, plan.map_id, TOPIC)


@pytest.mark.parametrize("restore_id", ["../../x", "/etc", "a/../../b"])
def test_a_restore_id_that_leads_out_of_the_storage_is_refused(tmp_path: Path, restore_id: str) -> None:
    ledger = RestoreLedger(open_storage(StorageLocation(f"file://{tmp_path}")))

    with pytest.raises(BackupError, match="cannot be the name of an object"):
        ledger.plan(restore_id)


def test_a_folder_with_a_number_of_many_digits_is_no_restore() -> None:
    storage = MemoryStorage()
    storage.store(f"ab-{10**40}/plan.json", b"{}")
    storage.store(f"ab-{'9' * 5000}/plan.json", b"{}")

    assert RestoreLedger(storage).ids() == []
