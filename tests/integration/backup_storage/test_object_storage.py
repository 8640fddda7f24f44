"""What every storage must do: local directories and servers that speak S3 alike."""

import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from quorate.backup.errors import CommitConflict, ObjectExists, ObjectNotFound
from quorate.backup.manifests.catalog import ManifestCatalog, list_backup_ids
from quorate.backup.manifests.commit import commit
from quorate.backup.manifests.manifest import Mode
from quorate.backup.manifests.merging import merge_results
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import StorageLocation, StoredObject
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.planning.planner import plan_run
from quorate.backup.restore.ledger import RestoreLedger, restores_below
from quorate.backup.retention.holds import Hold, HoldLedger, holds_location
from quorate.backup.retention.orphans import find_orphans
from quorate.backup.retention.prune import Pruner
from quorate.backup.retention.prune_policy import PrunePolicy
from quorate.backup.segments.verification import verify_deeply, verify_hash
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, a_run, copy_all, copy_range, read_back, run_backup
from tests.unit.backup.retained_backups import QuietWatcher

MIB = 1024 * 1024
NOISE = hashlib.shake_256(b"noise").digest(MIB)


def test_put_if_absent_lets_one_writer_win_and_keeps_what_it_wrote(
    location: StorageLocation, request: pytest.FixtureRequest
) -> None:
    storage = open_storage(location)
    # moto looks for the object and then stores it, and lets other requests in between.
    writers_at_once = 1 if request.node.callspec.params["location"] == "moto" else 8

    def put(number: int) -> bool:
        try:
            storage.put_if_absent("manifests/000001.json", b"%d" % number)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(writers_at_once) as pool:
        won = list(pool.map(put, range(8)))

    assert won.count(True) == 1
    assert storage.read("manifests/000001.json") == b"%d" % won.index(True)
    assert [each.name for each in storage.objects()] == ["manifests/000001.json"]


def test_replace_puts_an_object_in_the_place_of_another_and_its_name_stays_taken(location: StorageLocation) -> None:
    storage = open_storage(location)
    storage.put_if_absent("manifests/000001.json", b"manifest")

    storage.replace("manifests/000001.json", b"mark")

    assert storage.read("manifests/000001.json") == b"mark"
    with pytest.raises(ObjectExists):
        storage.put_if_absent("manifests/000001.json", b"late")
    assert [each.name for each in storage.objects()] == ["manifests/000001.json"]


def test_a_backup_is_pruned_to_its_newest_manifest_and_then_deleted(location: StorageLocation) -> None:
    storage, log = open_storage(location.below(BACKUP_ID)), PartitionLog()
    catalog = ManifestCatalog(storage, BACKUP_ID)
    holds = HoldLedger(open_storage(holds_location(location, BACKUP_ID)), BACKUP_ID)
    pruner = Pruner(storage, catalog, holds, RestoreLedger(open_storage(restores_below(location, BACKUP_ID))))
    for number in range(4):
        log.append(5)
        newest = run_backup(storage, log, f"run{number}", mode=Mode.SNAPSHOT)
    holds.hold(catalog, 2, Hold(since_ms=1))

    pruner.prune(PrunePolicy(keep_last=1), QuietWatcher(), now_ms=1)

    assert catalog.numbers() == [2, 4]
    assert find_orphans(list(storage.objects()), catalog.history()) == []
    assert read_back(storage, newest) == [data for _, data in log.batches]
    holds.release(2, now_ms=2)
    pruner.prune(PrunePolicy(drops_all=True), QuietWatcher(), now_ms=1)
    assert list_backup_ids(open_storage(location)) == []
    assert [each.name for each in storage.objects() if not each.name.startswith("manifests/")] == []


def test_a_large_object_is_streamed_and_read_back_in_ranges(location: StorageLocation) -> None:
    storage = open_storage(location)
    upload = storage.open_upload("topics/t/0/a.qseg")
    for number in range(20):
        upload.write([b"%02d" % number, memoryview(NOISE)])
    upload.complete()

    size_bytes = 20 * (MIB + 2)
    assert storage.info("topics/t/0/a.qseg").size_bytes == size_bytes
    assert bytes(storage.read_range("topics/t/0/a.qseg", 7 * (MIB + 2), 12)) == b"07" + NOISE[:10]
    assert bytes(storage.read_range("topics/t/0/a.qseg", size_bytes - 5, 100)) == NOISE[-5:]
    assert len(storage.read("topics/t/0/a.qseg")) == size_bytes


def test_buffers_may_be_used_again_as_soon_as_they_are_written(location: StorageLocation) -> None:
    storage = open_storage(location)
    buffer = bytearray(3 * MIB)
    upload = storage.open_upload("a")
    for number in range(6):
        buffer[:] = bytes([number]) * len(buffer)
        upload.write([buffer])
    upload.complete()

    assert storage.read("a") == b"".join(bytes([number]) * (3 * MIB) for number in range(6))


@pytest.mark.parametrize("pieces", [0, 1, 20])
def test_an_upload_that_is_given_up_leaves_no_object(location: StorageLocation, pieces: int) -> None:
    storage = open_storage(location)
    upload = storage.open_upload("topics/t/0/a.qseg")
    for _ in range(pieces):
        upload.write([NOISE])
    upload.abort()
    upload.abort()

    assert list(storage.objects()) == []


def test_an_upload_that_is_open_is_not_an_object_yet(location: StorageLocation) -> None:
    storage = open_storage(location)
    upload = storage.open_upload("a.qseg")
    upload.write([NOISE])

    with pytest.raises(ObjectNotFound):
        storage.read("a.qseg")
    upload.complete()
    assert storage.info("a.qseg").size_bytes == MIB


def test_objects_are_listed_below_a_folder(location: StorageLocation) -> None:
    storage = open_storage(location)
    for name in ("a/x/1", "a/x/2", "ab/3", "b/4"):
        storage.put_if_absent(name, b"12")

    assert sorted(each.name for each in storage.objects()) == ["a/x/1", "a/x/2", "ab/3", "b/4"]
    assert sorted(each.name for each in storage.objects("a/")) == ["a/x/1", "a/x/2"]
    assert list(storage.objects("none/")) == []
    assert storage.folders() == ["a", "ab", "b"]
    assert all(each.size_bytes == 2 and each.modified_ms > 0 for each in storage.objects())


def test_what_is_missing_is_said_to_be_missing(location: StorageLocation) -> None:
    storage = open_storage(location)
    storage.put_if_absent("there", b"")

    for ask in (storage.read, storage.info, lambda name: storage.read_range(name, 0, 5)):
        with pytest.raises(ObjectNotFound, match=f"^{location.url}/nope does not exist$"):
            ask("nope")
    storage.delete("nope")
    storage.delete("there")
    assert list(storage.objects()) == []


def test_a_task_opens_its_own_storage_from_what_was_sent(location: StorageLocation) -> None:
    sent = pickle.dumps(open_storage(location))

    pickle.loads(sent).put_if_absent("a", b"1")

    assert open_storage(location).read("a") == b"1"


def test_a_chain_of_runs_is_read_back_whole(location: StorageLocation) -> None:
    storage = open_storage(location.below(BACKUP_ID))
    log = PartitionLog()
    for number in range(3):
        for _ in range(4):
            log.append(5)
        manifest = run_backup(storage, log, f"run{number}")

    assert manifest.number == 3
    assert read_back(storage, manifest) == [data for _, data in log.batches]
    for segment in manifest.topics[0].partitions[0].segments:
        source = StoredObject(storage, segment.name, segment.size_bytes)
        verify_hash(source, segment)
        verify_deeply(source, segment)
    assert list_backup_ids(open_storage(location)) == [BACKUP_ID]
    assert find_orphans(list(storage.objects()), ManifestCatalog(storage, BACKUP_ID).history()) == []


def test_of_backups_that_are_started_together_one_wins_and_the_others_say_so(location: StorageLocation) -> None:
    log = PartitionLog()
    for _ in range(4):
        log.append(5)

    def run(run_id: str) -> str:
        storage = open_storage(location.below(BACKUP_ID))
        plan = plan_run(log.snapshot(None), None, TopicSelection(), Mode.SNAPSHOT)
        merged = merge_results(plan, copy_all(storage, log, run_id)(plan))
        manifest = commit(None, a_run(run_id), merged.updates, merged.requirements)
        try:
            ManifestCatalog(storage, BACKUP_ID).publish(manifest, merged.segments)
        except CommitConflict as conflict:
            return str(conflict)
        return "won"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(run, ["a", "b", "c", "d"]))

    storage = open_storage(location.below(BACKUP_ID))
    manifest = ManifestCatalog(storage, BACKUP_ID).latest()
    assert manifest is not None
    assert outcomes.count("won") == 1
    assert manifest.run_id == "abcd"[outcomes.index("won")]
    assert sum("another run has committed manifest 1" in outcome for outcome in outcomes) == 3
    assert read_back(storage, manifest) == [data for _, data in log.batches]


def test_a_killed_task_leaves_an_orphan_that_is_found(location: StorageLocation) -> None:
    storage = open_storage(location.below(BACKUP_ID))
    log = PartitionLog()
    for _ in range(6):
        log.append(5)
    plan = plan_run(log.snapshot(None), None, TopicSelection(), Mode.SNAPSHOT)
    copy_range(storage, log, plan.tasks[0].ranges[0], "killed")
    manifest = run_backup(storage, log, "one")

    orphans = find_orphans(list(storage.objects()), [manifest])

    assert orphans
    assert all("killed" in each.name for each in orphans)
    for each in orphans:
        storage.delete(each.name)
    assert read_back(storage, manifest) == [data for _, data in log.batches]
