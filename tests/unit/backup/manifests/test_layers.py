"""Manifests that stand on layers: every one reads the same, and a layer is there as long as one that names it."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quorate.backup.errors import DamagedManifest, StorageError
from quorate.backup.manifests import commit, delta, document
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.delta import ManifestDelta
from quorate.backup.manifests.document import decode_document
from quorate.backup.manifests.manifest import FORMAT_VERSION, MAX_LAYERS, Layer, Manifest, Mode
from quorate.backup.objects.names import is_layer_name, manifest_name
from quorate.backup.objects.stored_documents import decode_sealed, encode_sealed, seal
from quorate.backup.retention import compaction
from quorate.backup.retention.holds import Pruning
from quorate.backup.retention.orphans import find_orphans
from tests.unit.backup.backup_runs import BACKUP_ID, read_back
from tests.unit.backup.retained_backups import Killed, RetainedBackup, layered


@pytest.fixture(autouse=True)
def small_manifests_have_layers() -> Iterator[None]:
    with layered(3):
        yield


def history(runs: int = 40) -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(runs)
    return backup


def layers_of(backup: RetainedBackup, number: int) -> list[Layer]:
    return ManifestCatalog(backup.storage, BACKUP_ID).read(number).layers


def layers_there(backup: RetainedBackup) -> set[str]:
    return {name for name in backup.storage.contents if is_layer_name(name)}


def layers_named(backup: RetainedBackup) -> set[str]:
    return {layer.name for manifest in backup.manifests().values() for layer in manifest.layers}


def stored(backup: RetainedBackup, number: int) -> Manifest | ManifestDelta:
    return decode_document(backup.storage.contents[manifest_name(number)], "")


def test_every_manifest_reads_the_same_as_it_was_told_whatever_it_stands_on() -> None:
    backup = RetainedBackup()
    told: dict[int, Manifest] = {}
    for run in range(120):
        match run % 40:
            case 17:
                backup.log.elect_unclean(backup.log.end_offset - 4)
            case 29 if run > 80:
                manifest = backup.compact()
                assert manifest is not None
                told[manifest.number] = manifest
        backup.log.append(3)
        manifest = backup.back_up(Mode.SNAPSHOT if run == 60 else Mode.INCREMENTAL)
        told[manifest.number] = manifest

    for number, manifest in told.items():
        found = ManifestCatalog(backup.storage, BACKUP_ID).read(number)
        assert msgspec.structs.replace(found, layers=[]) == msgspec.structs.replace(manifest, layers=[])
    assert max(len(layers_of(backup, number)) for number in told) >= 3
    assert layers_named(backup) == layers_there(backup)


def test_no_layer_is_much_smaller_than_the_one_on_it_and_the_upper_ones_are_twice_as_large() -> None:
    backup = history(200)
    for number in backup.manifests():
        sizes = [layer.size_bytes for layer in layers_of(backup, number)]
        assert all(4 * lower >= 3 * upper for lower, upper in pairwise(sizes[:9]))
        assert all(lower >= 2 * upper for lower, upper in pairwise(sizes[8:]))
        assert len(sizes) < MAX_LAYERS


def test_what_is_written_grows_with_the_logarithm_of_what_is_repeated() -> None:
    """Where whole manifests were written every few runs it grew with the square of the runs."""

    def written(runs: int) -> int:
        backup = history(runs)
        documents = {name: content for name, content in backup.storage.contents.items() if name.startswith("manifests")}
        assert backup.storage.contents.keys() - documents.keys() == backup.manifests()[
            runs
        ].object_names() - layers_there(backup)
        return sum(map(len, documents.values()))

    assert written(400) < 2.6 * written(200)


def test_more_layers_than_a_manifest_may_have_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_LAYERS", 2)
    backup = history(150)
    assert {len(layers_of(backup, number)) for number in backup.manifests()} == {0, 1, 2}


def test_a_compaction_begins_a_layer_without_those_that_only_say_what_it_has_merged() -> None:
    backup = history(38)
    before = layers_of(backup, 38)

    backup.compact()

    after = layers_of(backup, 39)
    assert after[-1].number == 39
    assert sum(each.size_bytes for each in after) < sum(each.size_bytes for each in before) / 5


def test_layers_in_any_order_are_read_and_the_next_compaction_leaves_them_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as careless:
        careless.setattr(document, "_staying", lambda _manifest, _contents, below: min(len(below), MAX_LAYERS - 1))
        backup = history(60)
    told = backup.everything()
    assert len(layers_of(backup, 60)) == MAX_LAYERS

    backup.grow(1)
    backup.compact()
    newest = max(backup.manifests())
    backup.grow(12)

    sizes = [layer.size_bytes for layer in layers_of(backup, newest)]
    assert len(sizes) < 4
    assert all(lower >= 4 * upper for lower, upper in pairwise(sizes))
    assert layers_of(backup, newest + 12)[: len(sizes)] == layers_of(backup, newest)
    assert {number: each for number, each in backup.everything().items() if number <= 60} == told


@pytest.mark.parametrize("kept", range(1, 31))
def test_any_manifest_that_is_held_alone_reads_the_same_when_all_others_are_pruned(kept: int) -> None:
    backup = history(30)
    before = backup.everything()
    backup.hold(kept)

    backup.prune(keep_last=1)

    assert backup.everything() == {kept: before[kept], 30: before[30]}
    assert layers_there(backup) == layers_named(backup)
    assert find_orphans(backup.storage.objects(), backup.catalog.history()) == []
    backup.grow(9)
    assert read_back(backup.storage, backup.manifests()[39]) == [data for _, data in backup.log.batches]


def test_a_checkpoint_repeats_no_layer() -> None:
    backup = history(90)
    last = max(number for number in backup.manifests() if backup.catalog.base_of(number) is not None)
    backup.hold(last)

    backup.prune(keep_last=1)

    (checkpoint,) = (name for name in backup.storage.contents if name.endswith(f"{last:06d}.checkpoint.json"))
    assert 5 * len(backup.storage.contents[checkpoint]) < layers_of(backup, last)[0].size_bytes


def test_a_run_goes_on_from_a_manifest_that_is_read_from_its_checkpoint() -> None:
    """It may stand on the layers of that manifest, so those are there."""
    backup = history(30)
    for _ in range(12):
        backup.prune(keep_last=1)
        backup.grow(1)
        backup.assert_whole()
        assert layers_named(backup) <= layers_there(backup)
    assert read_back(backup.storage, backup.manifests()[42]) == [data for _, data in backup.log.batches]


def before_a_layer() -> RetainedBackup:
    """The next run begins one."""
    backup = history(6)
    while True:
        before = backup.copy()
        backup.grow(1)
        newest = max(backup.manifests())
        if layers_of(backup, newest)[-1].number == newest:
            return before


@pytest.mark.parametrize("is_late", [False, True])
def test_a_run_that_is_killed_at_any_call_leaves_at_most_an_orphan(*, is_late: bool) -> None:
    before = before_a_layer()
    whole = before.copy()
    whole.grow(1)
    seen_orphans = 0
    for call in range(1, whole.calls.count - before.calls.count + 1):
        killed = before.copy()
        killed.calls.kill_at(call, is_late=is_late)
        with contextlib.suppress(Killed):
            killed.grow(1)
        killed.calls.revive()
        killed.grow(1)

        newest = killed.manifests()[max(killed.manifests())]
        assert read_back(killed.storage, newest) == [data for _, data in killed.log.batches]
        orphans = {each.name for each in find_orphans(killed.storage.objects(), killed.catalog.history())}
        assert layers_there(killed) - layers_named(killed) == {name for name in orphans if is_layer_name(name)}
        seen_orphans += len(layers_there(killed) - layers_named(killed))
    assert seen_orphans > 0, "one was put, and the manifest on it was not"


def test_a_layer_that_somebody_else_has_put_in_the_way_stops_the_run() -> None:
    before = before_a_layer()
    after = before.copy()
    after.grow(1)
    newest = max(after.manifests())
    before.storage.store(layers_of(after, newest)[-1].name, b"another")

    with pytest.raises(StorageError, match="is there already: nothing was committed"):
        before.grow(1)
    assert max(before.manifests()) == newest - 1


def newest_on_layers(backup: RetainedBackup) -> tuple[int, ManifestDelta]:
    """The newest manifest that is stored on two layers or more."""
    return max(
        (number, each)
        for number in backup.manifests()
        if isinstance(each := stored(backup, number), ManifestDelta) and len(each.layers) >= 2
    )


@pytest.mark.parametrize("height", [0, 1])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda content: content.replace(b"1", b"2", 1), "does not match its SHA-256"),
        (lambda content: content[:-1], "does not match its SHA-256"),
        (lambda content: seal(content[:-78] + b',"x":1}'), "bytes, not"),
        (lambda _: seal(b'{"format_version":4}'), "cannot be read"),
    ],
    ids=["flipped", "cut", "longer", "another"],
)
def test_a_damaged_layer_is_named(height: int, damage: Callable[[bytes], bytes], complaint: str) -> None:
    backup = history(60)
    number, on_layers = newest_on_layers(backup)
    name = on_layers.layers[height].name
    backup.storage.contents[name] = damage(backup.storage.contents[name])

    with pytest.raises(DamagedManifest, match=rf"^[^\n]*{Path(name).name}[^\n]*{complaint}"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)


def test_a_missing_layer_is_named_with_the_manifest_that_stands_on_it() -> None:
    backup = history(60)
    number, on_layers = newest_on_layers(backup)
    del backup.storage.contents[on_layers.layers[0].name]

    with pytest.raises(DamagedManifest, match=rf"manifest {number} of .* cannot be read: {on_layers.layers[0].name}"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)


LIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "upside down": lambda layers: layers[::-1],
    "the lowest is missing": lambda layers: layers[1:],
    "the uppermost is missing": lambda layers: layers[:-1],
    "one twice": lambda layers: [layers[0], *layers],
    "too many": lambda layers: [{**layers[0], "number": number + 1} for number in range(MAX_LAYERS + 1)],
    "another folder": lambda layers: [{**layers[0], "run_id": "../../x"}, *layers[1:]],
    "a line": lambda layers: [{**layers[0], "run_id": layers[0]["run_id"] + "\n"}, *layers[1:]],
    "of later": lambda layers: [*layers[:-1], {**layers[-1], "number": 10**6}],
    "another size": lambda layers: [{**layers[0], "size_bytes": 7}, *layers[1:]],
    "a number": lambda _: 7,
}


@pytest.mark.parametrize("lie", LIES)
def test_layers_that_do_not_fit_are_a_sentence(lie: str) -> None:
    backup = history(60)
    number, on_layers = newest_on_layers(backup)
    tree = msgspec.json.decode(msgspec.json.encode(on_layers))
    tree["layers"] = LIES[lie](tree["layers"])
    backup.storage.store(manifest_name(number), seal(msgspec.json.encode(tree)))

    with pytest.raises(DamagedManifest, match=r"^[^\n]+$"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(number)


def test_a_whole_manifest_with_layers_out_of_order_is_refused() -> None:
    backup = history(60)
    _, on_layers = newest_on_layers(backup)
    whole = msgspec.structs.replace(backup.manifests()[60], layers=on_layers.layers[::-1])
    backup.storage.store(manifest_name(60), seal(msgspec.json.encode(whole)))

    with pytest.raises(DamagedManifest, match="manifest 60 has layers out of order"):
        ManifestCatalog(backup.storage, BACKUP_ID).read(60)


def test_a_decision_to_prune_may_name_layers_and_nothing_else_but_segments() -> None:
    layer = "manifests/000007-run7.layer.json"
    assert decode_sealed(encode_sealed(Pruning(objects={layer: 1})), Pruning).objects == {layer: 1}
    for name in (
        layer,
        "manifests/000007-run/7.layer.json",
        "manifests/000000-run7.layer.json",
        "manifests/000007.json",
    ):
        backup = history(1)
        backup.holds.begin_pruning(1, {name: 1})
        assert len(backup.holds.damages()) == (name != layer)


def test_a_store_of_version_3_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(document, "MIN_LAYERED_BYTES", 10**9)
        for module in (commit, compaction, delta, document):
            older.setattr(module, "FORMAT_VERSION", 3)
        backup = history(20)
        backup.compact()
        backup.grow(20)
    assert {manifest.format_version for manifest in backup.manifests().values()} == {3}
    assert layers_there(backup) == set()
    told = backup.everything()

    backup.grow(1)
    assert {number: batches for number, batches in backup.everything().items() if number <= 41} == told
    backup.compact()
    backup.grow(20)
    backup.prune(keep_last=2)

    assert layers_there(backup) == layers_named(backup) != set()
    assert len(backup.everything()) == 2
    newest = backup.manifests()[max(backup.manifests())]
    assert newest.format_version == FORMAT_VERSION
    assert read_back(backup.storage, newest) == [data for _, data in backup.log.batches]
