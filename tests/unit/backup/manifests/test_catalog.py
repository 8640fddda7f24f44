"""Publishing and reading manifests: one winner, no guess, and nothing named that is not there."""

import contextlib
import hashlib

import msgspec
import pytest

from quorate.backup.errors import BackupError, CommitConflict, DamagedManifest, RequirementFailed, StorageError
from quorate.backup.manifests.catalog import ManifestCatalog, list_backup_ids
from quorate.backup.manifests.commit import commit
from quorate.backup.manifests.manifest import Manifest, Mode, encode_manifest
from quorate.backup.manifests.merging import merge_results
from quorate.backup.objects.storage import StoredObject
from quorate.backup.objects.stored_documents import seal
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.planning.planner import plan_run
from quorate.backup.segments.verification import verify_hash
from tests.unit.backup.backup_runs import BACKUP_ID, PartitionLog, a_run, copy_all, read_back, run_backup
from tests.unit.backup.memory_storage import MemoryStorage


def log_of(count: int) -> PartitionLog:
    log = PartitionLog()
    for _ in range(count):
        log.append(4)
    return log


def catalog_of(storage: MemoryStorage) -> ManifestCatalog:
    return ManifestCatalog(storage, BACKUP_ID)


def test_no_manifest_is_none_only_where_the_storage_says_so() -> None:
    assert catalog_of(MemoryStorage()).latest() is None


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_manifest_read_error_is_not_taken_for_the_first_run(fails_at: int) -> None:
    storage = MemoryStorage()
    run_backup(storage, log_of(2), "one")
    storage.calls, storage.fails_at = 0, fails_at

    with pytest.raises(StorageError, match="failed"):
        catalog_of(storage).latest()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is damaged: it does not match its SHA-256"),
        (b"{", "is damaged: it does not match its SHA-256"),
        (b'{"format_version":1}\n', "is damaged: it does not match its SHA-256"),
        (seal(b'{"format_version":3}'), "cannot be read"),
        (seal(b'{"format_version":4}'), "cannot be read"),
        (seal(b'{"format_version":1}'), "has format version 1; this version of quorate knows 3 and 4"),
    ],
)
def test_a_damaged_manifest_stops_and_history_is_not_overwritten(content: bytes, complaint: str) -> None:
    storage = MemoryStorage()
    storage.store("manifests/000001.json", content)

    with pytest.raises(DamagedManifest, match=complaint):
        run_backup(storage, log_of(2), "one")
    assert storage.contents["manifests/000001.json"] == content


def test_every_cut_of_a_manifest_is_refused() -> None:
    storage = MemoryStorage()
    whole = encode_manifest(run_backup(storage, log_of(2), "one"))
    for length in range(len(whole)):
        storage.store("manifests/000001.json", whole[:length])
        with pytest.raises(DamagedManifest):
            catalog_of(storage).latest()


def test_every_flipped_bit_of_a_manifest_is_found_and_an_older_one_does_not_take_its_place() -> None:
    storage, log = MemoryStorage(), log_of(2)
    run_backup(storage, log, "one")
    log.append(4)
    run_backup(storage, log, "two")
    whole = storage.contents["manifests/000002.json"]
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            storage.store("manifests/000002.json", bytes(damaged))
            with pytest.raises(DamagedManifest, match=r"^manifest \S+/manifests/000002\.json is damaged: "):
                catalog_of(storage).latest()


def test_a_manifest_is_plain_json_with_its_digest_at_the_end() -> None:
    storage = MemoryStorage()
    run_backup(storage, log_of(2), "one")
    content, _, tail = storage.contents["manifests/000001.json"].rpartition(b',"sha256":')

    document = msgspec.json.decode(storage.contents["manifests/000001.json"])
    assert list(document)[-1] == "sha256"
    assert tail == b'"%s"}\n' % hashlib.sha256(content).hexdigest().encode()


def test_a_manifest_with_a_hole_in_its_offsets_is_refused() -> None:
    storage = MemoryStorage()
    manifest = run_backup(storage, log_of(12), "one")
    partition = manifest.topics[0].partitions[0]
    assert len(partition.segments) > 2
    without = msgspec.structs.replace(partition, segments=partition.segments[:1] + partition.segments[2:])
    topic = msgspec.structs.replace(manifest.topics[0], partitions=[without])
    storage.store("manifests/000001.json", encode_manifest(msgspec.structs.replace(manifest, topics=[topic])))

    with pytest.raises(DamagedManifest, match="partition orders-0: nothing, or two things"):
        catalog_of(storage).latest()


def test_a_manifest_in_another_ones_place_is_refused() -> None:
    storage = MemoryStorage()
    run_backup(storage, log_of(2), "one")
    storage.store("manifests/000002.json", storage.contents["manifests/000001.json"])

    with pytest.raises(DamagedManifest, match="copied or renamed"):
        catalog_of(storage).latest()


def test_other_files_beside_the_manifests_are_passed_over() -> None:
    storage = MemoryStorage()
    run_backup(storage, log_of(2), "one")
    for name in ("manifests/000002.json.abc.partial", "manifests/readme.txt", "manifests/2.json"):
        storage.store(name, b"")

    assert catalog_of(storage).numbers() == [1]


def test_a_missing_manifest_is_named() -> None:
    with pytest.raises(BackupError, match="backup nightly has no manifest 3"):
        catalog_of(MemoryStorage()).read(3)


def prepare(storage: MemoryStorage, log: PartitionLog, run_id: str) -> tuple[Manifest, list[str]]:
    """All of a run but its publication."""
    previous = catalog_of(storage).latest()
    plan = plan_run(log.snapshot(previous), previous, TopicSelection(), Mode.INCREMENTAL)
    merged = merge_results(plan, copy_all(storage, log, run_id)(plan))
    return commit(previous, a_run(run_id), merged.updates, merged.requirements), [each.name for each in merged.segments]


def test_of_two_backups_of_one_id_one_wins_and_the_other_says_so() -> None:
    storage, log = MemoryStorage(), log_of(3)
    first, _ = prepare(storage, log, "first")
    second, _ = prepare(storage, log, "second")

    catalog_of(storage).publish(second, [])
    with pytest.raises(CommitConflict, match="another run has committed manifest 1 of backup nightly first; nothing"):
        catalog_of(storage).publish(first, [])

    latest = catalog_of(storage).latest()
    assert latest is not None
    assert latest.run_id == "second"


def test_a_run_that_was_overtaken_before_its_commit_is_told_by_the_requirements() -> None:
    storage, log = MemoryStorage(), log_of(3)
    previous = catalog_of(storage).latest()
    plan = plan_run(log.snapshot(previous), previous, TopicSelection(), Mode.INCREMENTAL)
    merged = merge_results(plan, copy_all(storage, log, "slow")(plan))
    run_backup(storage, log, "fast")

    with pytest.raises(RequirementFailed, match="was at manifest none when the run began and is at 1 now"):
        commit(catalog_of(storage).latest(), a_run("slow"), merged.updates, merged.requirements)


def test_another_cluster_under_the_same_id_is_refused() -> None:
    storage, log = MemoryStorage(), log_of(3)
    previous = run_backup(storage, log, "one")
    snapshot = msgspec.structs.replace(log.snapshot(previous), cluster_id="cluster-b")
    plan = plan_run(snapshot, previous, TopicSelection(), Mode.INCREMENTAL)
    merged = merge_results(plan, [])

    with pytest.raises(RequirementFailed, match="is of cluster cluster-a and this is cluster cluster-b: use another"):
        commit(previous, a_run("two"), merged.updates, merged.requirements)


def test_a_lost_answer_to_the_commit_is_not_taken_for_a_failure() -> None:
    storage, log = MemoryStorage(), log_of(3)
    manifest, _ = prepare(storage, log, "one")
    catalog = catalog_of(storage)
    catalog.probe("one")
    storage.fails_at, storage.fails_late = storage.calls + 2, True  # It lists, then puts.

    catalog.publish(manifest, [])

    assert catalog.latest() == manifest


def test_a_commit_that_was_sent_twice_is_not_a_conflict_with_itself() -> None:
    storage, log = MemoryStorage(), log_of(3)
    manifest, _ = prepare(storage, log, "one")

    catalog_of(storage).publish(manifest, [])
    catalog_of(storage).publish(manifest, [])


def test_a_storage_that_does_not_enforce_put_if_absent_is_refused() -> None:
    storage = MemoryStorage(enforces=False)

    with pytest.raises(StorageError, match="does not enforce put-if-absent"):
        run_backup(storage, log_of(1), "one")
    assert storage.contents == {}


def test_the_probe_leaves_nothing_behind() -> None:
    storage = MemoryStorage()

    catalog_of(storage).probe("one")

    assert storage.contents == {}


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_manifest_that_names_a_missing_or_short_object_is_not_published(damage: str) -> None:
    storage, log = MemoryStorage(), log_of(3)
    previous = None
    plan = plan_run(log.snapshot(previous), previous, TopicSelection(), Mode.SNAPSHOT)
    merged = merge_results(plan, copy_all(storage, log, "one")(plan))
    manifest = commit(previous, a_run("one"), merged.updates, merged.requirements)
    name = merged.segments[0].name
    if damage == "missing":
        del storage.contents[name]
    else:
        storage.store(name, storage.contents[name][:-1])

    with pytest.raises(StorageError, match=name):
        catalog_of(storage).publish(manifest, merged.segments)
    assert catalog_of(storage).latest() is None


@pytest.mark.parametrize("fails_late", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_storage_that_fails_at_every_nth_call_never_leaves_a_manifest_with_a_missing_or_short_object(
    fails_late: bool, is_repeated: bool
) -> None:
    log = log_of(8)
    baseline = MemoryStorage()
    run_backup(baseline, log, "one")
    for number in range(1, baseline.calls + 1):
        storage = MemoryStorage(fails_late=fails_late)
        storage.fails_every, storage.fails_at = (number, None) if is_repeated else (None, number)
        with contextlib.suppress(StorageError):
            run_backup(storage, log, "one")
        storage.fails_every = storage.fails_at = None

        assert storage.open_uploads == 0
        for manifest in catalog_of(storage).history():
            for segment in manifest.topics[0].partitions[0].segments:
                verify_hash(StoredObject(storage, segment.name), segment)
        again = run_backup(storage, log, "two")
        assert read_back(storage, again) == [data for _, data in log.batches]


def test_backups_are_listed_by_their_manifests() -> None:
    storage = MemoryStorage()
    for name in ("a/manifests/000001.json", "b/topics/x", "c/manifests/000009.json", "loose-file"):
        storage.store(name, b"")

    assert list_backup_ids(storage) == ["a", "c"]
