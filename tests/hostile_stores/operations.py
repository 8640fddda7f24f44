"""What commands and tasks do with a store: each may fail with one sentence, and in no other way."""

import contextlib
import io
from collections.abc import Callable
from random import Random

import msgspec
import typer

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import Manifest
from quorate.backup.objects.opening import open_storage
from quorate.backup.restore.claims import PartitionClaim
from quorate.backup.restore.ledger import restores_below
from quorate.backup.restore.offset_map import translate_group
from quorate.backup.retention.compaction import merge_segments, plan_merges
from quorate.backup.retention.holds import Hold
from quorate.backup.retention.orphans import collect_orphans
from quorate.backup.retention.prune import Pruner
from quorate.backup.retention.prune_policy import PrunePolicy
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.spark.data_source.backup_reading import plan_backup, read_backup
from quorate.backup.spark.data_source.options import BackupSource, parse_options
from quorate.backup.spark.upkeep.verification import DeepCheck, take_inventory
from quorate.cli.spark import OutputFormat
from quorate.cli.stored_backups import list_backups, verify
from quorate.kernel.ids import PartitionIndex, TopicName
from tests.hostile_stores.restoring import SECTIONS, planned, read_what_would_be_written
from tests.hostile_stores.seed_store import RESTORES, SeedStore
from tests.unit.backup.backup_runs import BACKUP_ID, run_backup
from tests.unit.backup.batches import TOPIC
from tests.unit.backup.retained_backups import QuietWatcher

Operation = Callable[[SeedStore, Random], object]


def list_them(store: SeedStore, random: Random) -> None:
    output_format = random.choice(list(OutputFormat))
    _printable(lambda: list_backups(store.root.url, random.choice([None, BACKUP_ID]), None, output_format))


def verify_quickly(store: SeedStore, random: Random) -> None:
    _printable(lambda: verify(store.root.url, BACKUP_ID, newest_only=random.random() < 0.3))


def verify_deeply(store: SeedStore, random: Random) -> None:
    inventory = take_inventory(store.catalog)
    if inventory is not None:
        DeepCheck(store.location)(msgspec.msgpack.encode(inventory.segments))


def restore(store: SeedStore, random: Random) -> None:
    manifest = _some_manifest(store, random)
    if manifest is not None:
        plan, maps = planned(store.location, manifest, "0", random.choice(SECTIONS))
        msgspec.json.encode(plan)
        msgspec.msgpack.encode(maps)
        read_what_would_be_written(store.location, plan, manifest)


def go_on_with_a_restore(store: SeedStore, random: Random) -> None:
    ledger, restore_id = store.restores, random.choice(RESTORES)
    ledger.unfinished()
    ledger.latest("abc0")
    plan = ledger.plan(restore_id)
    ledger.topic_ids(restore_id), ledger.done(restore_id), ledger.is_written(restore_id)
    ledger.group_snapshots(restore_id)
    manifest = store.catalog.read(plan.manifest_number)
    store.holds.drops(store.catalog, plan.manifest_number)
    maps = {topic.name: ledger.offset_map(restore_id, plan.map_id, topic.name) for topic in plan.topics}
    newest = {TopicName(topic.name): topic.generation for topic in manifest.topics}
    for group in manifest.groups:
        translate_group(group, plan, maps, newest)
    storage = open_storage(restores_below(store.root, BACKUP_ID))
    PartitionClaim(storage, restore_id, TOPIC, PartitionIndex(0), run_number=5, now=lambda: 0.0)
    read_what_would_be_written(store.location, plan, manifest)


def read_as_a_table(store: SeedStore, random: Random) -> None:
    raw = {
        "backup": store.root.url,
        "backup_id": BACKUP_ID,
        "isolation": random.choice(["read_committed", "read_uncommitted"]),
    }
    manifest = _some_manifest(store, random)
    options = parse_options(raw if manifest is None else raw | {"manifest": str(manifest.number)})
    assert isinstance(options.source, BackupSource)
    for task in plan_backup(options.source, options):
        for _ in read_backup(task):
            pass


def compact(store: SeedStore, random: Random) -> None:
    manifest = _some_manifest(store, random)
    if manifest is None:
        return
    codec = FrameCodec[manifest.settings.compression.upper()]
    for group in plan_merges(manifest, min_segment_bytes=10**6, max_segment_bytes=10**7):
        merge_segments(store.storage, group, cluster_id=manifest.cluster_id, codec=codec, attempt="fuzz")


def prune(store: SeedStore, random: Random) -> None:
    policy = random.choice([PrunePolicy(keep_last=1), PrunePolicy(keep_last=2), PrunePolicy(drops_all=True)])
    pruner = Pruner(store.storage, store.catalog, store.holds, store.restores, requests_in_flight=1)
    with contextlib.suppress(BackupError):
        pruner.prune(policy, QuietWatcher(), now_ms=1, ignored_restores=RESTORES)
    collect_orphans(store.storage, store.catalog, now_ms=2**50, safe_age_ms=0)
    pruner.forget_marks(now_ms=2**50, safe_age_ms=0)


def hold_and_release(store: SeedStore, random: Random) -> None:
    for number in store.catalog.numbers():
        store.holds.hold(store.catalog, number, Hold(since_ms=1))
        store.holds.release(number, now_ms=2)


def back_up(store: SeedStore, random: Random) -> None:
    run_backup(store.storage, store.log, "fuzz", range_bytes=10**6)


#: Of those that look at a changed object, by the folder that it is in.
OPERATIONS: dict[str, list[Operation]] = {
    f"{BACKUP_ID}/manifests": [
        list_them,
        verify_quickly,
        verify_deeply,
        restore,
        go_on_with_a_restore,
        read_as_a_table,
        compact,
        prune,
        hold_and_release,
        back_up,
    ],
    f"{BACKUP_ID}/topics": [
        verify_quickly,
        verify_deeply,
        verify_deeply,
        restore,
        restore,
        go_on_with_a_restore,
        read_as_a_table,
        read_as_a_table,
        compact,
        prune,
    ],
    f"{BACKUP_ID}~holds": [list_them, verify_quickly, go_on_with_a_restore, prune, hold_and_release],
    f"{BACKUP_ID}~restores": [verify_quickly, go_on_with_a_restore, go_on_with_a_restore, prune],
}


def _some_manifest(store: SeedStore, random: Random) -> Manifest | None:
    numbers = store.catalog.numbers()
    return store.catalog.read(random.choice(numbers)) if numbers else None


def _printable(command: Callable[[], object]) -> None:
    """A command with what it prints; its exit status says nothing here."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(typer.Exit):
        command()
    for line in (out.getvalue() + err.getvalue()).splitlines():
        is_json = line.startswith(("{", "["))  # For programs; it escapes what moves a cursor, and keeps all other text.
        assert is_json or line.isprintable(), f"moves the terminal's cursor: {line!r}"
        assert "Traceback" not in line
