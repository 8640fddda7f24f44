"""Manifests that are stored as what they change: every pair gives back what it was made of, and chains stay short."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.errors import DamagedManifest, ManifestPruned
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.delta import Chain, ManifestDelta, apply_delta, delta_between
from quorate.backup.manifests.document import (
    MAX_DELTA_RATIO,
    MAX_DELTAS,
    KnownManifest,
    decode_document,
    encode_document,
)
from quorate.backup.manifests.manifest import GroupEntry, GroupOffset, Manifest, encode_manifest
from quorate.backup.objects.names import checkpoint_name, manifest_name
from quorate.backup.objects.stored_documents import seal
from quorate.backup.retention.orphans import find_orphans
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from tests.unit.backup.backup_runs import BACKUP_ID, read_back
from tests.unit.backup.retained_backups import Calls, RetainedBackup

STEPS = st.sampled_from(["append", "truncate", "delete", "compact", "backup", "snapshot", "groups"])


def long_history(rounds: int = 40) -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(rounds)
    return backup


def deltas(backup: RetainedBackup) -> dict[int, ManifestDelta]:
    documents = {
        number: decode_document(backup.storage.contents[manifest_name(number)], "") for number in numbers(backup)
    }
    return {number: each for number, each in documents.items() if isinstance(each, ManifestDelta)}


def numbers(backup: RetainedBackup) -> list[int]:
    return list(backup.manifests())


def groups_of(*offsets: int, captured_ms: int = 5) -> list[GroupEntry]:
    return [
        GroupEntry(
            group=f"group-{index}",
            captured_ms=captured_ms + index,
            state="Stable",
            offsets=[GroupOffset(topic=TopicName("orders"), partition=PartitionIndex(0), offset=Offset(offset))],
        )
        for index, offset in sorted(enumerate(offsets), key=lambda each: f"group-{each[0]}")
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(1, 9)), min_size=2, max_size=14))
def test_any_manifest_can_be_told_as_a_delta_on_any_other_and_comes_back_the_same(steps: list[tuple[str, int]]) -> None:
    backup = RetainedBackup()
    seen: list[Manifest] = []
    for step, number in steps:
        match step:
            case "append":
                backup.log.append(number)
            case "truncate":
                backup.log.elect_unclean(number)
            case "delete":
                backup.log.delete_records(number)
            case "compact":
                backup.compact()
            case "groups":
                seen = [msgspec.structs.replace(each, groups=groups_of(*range(number))) for each in seen]
            case _:
                seen.append(backup.back_up())
    for base in seen:
        for manifest in seen:
            delta = delta_between(base, manifest, Chain(1))
            assert delta is not None
            stored = msgspec.json.decode(msgspec.json.encode(delta), type=ManifestDelta)
            assert apply_delta(base, stored) == manifest


def test_a_round_is_stored_as_what_it_adds_and_every_manifest_reads_the_same_by_another_process() -> None:
    backup = RetainedBackup()
    told = {}
    for _ in range(100):
        backup.log.append(3)
        manifest = backup.back_up()
        told[manifest.number] = manifest

    assert len(deltas(backup)) > 90
    for number, manifest in told.items():
        assert ManifestCatalog(backup.storage, BACKUP_ID).read(number) == manifest
    largest = max(len(backup.storage.contents[manifest_name(number)]) for number in told)
    stored = sum(len(backup.storage.contents[manifest_name(number)]) for number in told)
    assert stored < 8 * largest, "a hundred rounds repeat what was there"


def test_no_manifest_takes_more_than_a_bounded_number_of_objects_to_read() -> None:
    backup = long_history(3 * MAX_DELTAS)
    for number in numbers(backup):
        before = backup.calls.count
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)
        assert backup.calls.count - before <= MAX_DELTAS + 1
    for delta in deltas(backup).values():
        assert delta.base_chain.delta_bytes <= MAX_DELTA_RATIO * delta.base_chain.snapshot_bytes


def test_a_pruned_base_leaves_what_follows_it_readable_and_nothing_behind() -> None:
    backup = long_history()
    newest = backup.manifests()[40]
    assert 40 in deltas(backup)

    backup.prune(keep_last=1)

    assert backup.catalog.numbers() == [40]
    assert ManifestCatalog(backup.storage, BACKUP_ID).latest() == newest
    assert checkpoint_name(40) in backup.storage.contents
    backup.grow(1)
    assert read_back(backup.storage, backup.manifests()[41]) == [data for _, data in backup.log.batches]
    backup.prune(keep_last=1)
    assert checkpoint_name(40) not in backup.storage.contents
    assert find_orphans(backup.storage.objects(), backup.catalog.history()) == []


def test_a_checkpoint_is_an_orphan_once_its_manifest_is_gone_and_not_before() -> None:
    backup = long_history()
    backup.catalog.put_checkpoint(39)
    assert find_orphans(backup.storage.objects(), backup.catalog.history()) == []

    del backup.storage.contents[manifest_name(40)]
    del backup.storage.contents[manifest_name(39)]

    found = find_orphans(backup.storage.objects(), backup.catalog.history())
    assert checkpoint_name(39) in {each.name for each in found}


@pytest.mark.parametrize("kept", range(1, 41))
def test_any_manifest_that_is_held_alone_reads_the_same_when_all_others_are_pruned(kept: int) -> None:
    backup = long_history()
    before = backup.manifests()[kept]
    backup.hold(kept)

    backup.prune(keep_last=1)

    assert numbers(backup) == sorted({kept, 40})
    assert backup.manifests()[kept] == before
    backup.assert_whole()


@pytest.mark.parametrize("call", range(1, 45))
def test_a_manifest_is_read_while_all_that_it_follows_is_pruned(call: int) -> None:
    backup = long_history(41)
    newest = backup.manifests()[41]
    reader = backup.view(Calls(), "reader")

    def event() -> None:
        backup.prune(keep_last=1)

    reader.calls.happens_at(call, event)

    assert reader.catalog.read(41) == newest
    assert 41 in backup.catalog.numbers()


@pytest.mark.parametrize("call", range(1, 45))
def test_the_history_has_all_that_its_last_manifest_names_whatever_is_committed_and_pruned_meanwhile(call: int) -> None:
    """Who deletes old objects that no manifest names asks it for them."""
    backup = long_history(10)
    old = set(backup.storage.contents)
    reader = backup.view(Calls(), "reader")

    def event() -> None:
        backup.grow(1)
        backup.prune(keep_last=1)

    reader.calls.happens_at(call, event)

    named = {name for manifest in reader.catalog.history() for name in manifest.object_names()}
    assert named >= backup.manifests()[max(backup.manifests())].object_names() & old


def test_a_damaged_or_missing_base_is_named_with_what_follows_it() -> None:
    backup = long_history()
    number, delta = max(deltas(backup).items())
    name = manifest_name(delta.base_number)
    content = backup.storage.contents[name]

    backup.storage.contents[name] = content.replace(b"1", b"2", 1)
    with pytest.raises(DamagedManifest, match=rf"{delta.base_number:06d}\.json is damaged"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)

    del backup.storage.contents[name]
    with pytest.raises(
        DamagedManifest,
        match=rf"manifest {number} of backup nightly cannot be read: it follows manifest {number - 1}, and",
    ):
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_number": 40},
        {"base_number": 41},
        {"base_run_id": "another"},
        {"base_number": 0},
        {"base_number": -7},
        {"group_ages_ms": [1]},
    ],
    ids=str,
)
def test_a_delta_that_does_not_fit_is_a_sentence(changes: dict[str, Any]) -> None:
    backup = long_history()
    delta = msgspec.structs.replace(deltas(backup)[40], **changes)
    backup.storage.store(manifest_name(40), seal(msgspec.json.encode(delta)))

    with pytest.raises(DamagedManifest, match=r"^manifest (40 of backup nightly |\S+ cannot be read: Expected)[^\n]+$"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(40)


@pytest.mark.parametrize("splice", [[-1, 0, []], [0, -1, []], [10**18, 1, []], [0, 10**18, []]], ids=str)
def test_a_splice_outside_of_its_list_is_a_sentence(splice: list[Any]) -> None:
    backup = long_history()
    tree = msgspec.json.decode(msgspec.json.encode(deltas(backup)[40]))
    tree["topics"][0]["partitions"][0]["segments"] = splice
    backup.storage.store(manifest_name(40), seal(msgspec.json.encode(tree)))

    with pytest.raises(DamagedManifest, match=r"topic orders: it changes items|cannot be read: Expected"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(40)


def test_a_run_after_all_was_deleted_does_not_build_on_what_is_gone() -> None:
    backup = long_history(30)
    catalog = backup.catalog
    catalog.head()
    backup.prune(drops_all=True)

    head = catalog.head()
    backup.grow(1)

    assert head.manifest is None
    with pytest.raises(ManifestPruned):
        catalog.read(30)
    assert deltas(backup) == {}
    assert read_back(backup.storage, backup.manifests()[head.next_number]) == [data for _, data in backup.log.batches]


def test_a_run_that_knows_only_an_older_manifest_commits_no_delta_on_it() -> None:
    backup = long_history(30)
    stale = ManifestCatalog(backup.storage, BACKUP_ID)
    manifest, _ = stale.head()
    assert manifest is not None
    following = msgspec.structs.replace(manifest, number=32, run_id="later")

    stale.publish(following, [])

    assert isinstance(decode_document(backup.storage.contents[manifest_name(32)], ""), Manifest)


def test_times_of_groups_cost_a_number_each_and_offsets_only_where_they_moved() -> None:
    backup = long_history(30)
    base = msgspec.structs.replace(backup.manifests()[30], groups=groups_of(*range(500)))
    later = groups_of(*range(500), captured_ms=2_000)
    later[7] = msgspec.structs.replace(later[7], offsets=groups_of(9_999)[0].offsets)
    manifest = msgspec.structs.replace(base, number=31, run_id="later", captured_ms=3_000, groups=later)

    delta = delta_between(base, manifest, Chain(1))

    assert delta is not None
    assert [change.group for change in delta.groups] == [later[7].group]
    assert len(msgspec.json.encode(delta)) < 500 * 6 + 1000
    assert apply_delta(base, delta) == manifest


def test_a_manifest_that_repeats_nothing_is_stored_whole() -> None:
    base = long_history(30).manifests()[30]
    partition = base.topics[0].partitions[0]
    copied = [msgspec.structs.replace(each, name=each.name.replace("run", "new")) for each in partition.segments]
    topic = msgspec.structs.replace(base.topics[0], partitions=[msgspec.structs.replace(partition, segments=copied)])
    afresh = msgspec.structs.replace(base, number=31, topics=[topic])

    encoded = encode_document(afresh, KnownManifest(base, Chain(len(encode_manifest(base)))), lambda _: [])

    assert decode_document(encoded.content, "") == afresh
    assert encoded.known.chain == Chain(len(encoded.content))
