"""``quorate list-backups`` and ``verify``: which backups a storage holds, what is in them, and whether it is sound."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from quorate.cli.interruption import interruptible
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark import (
    ConfOption,
    FormatOption,
    KeepWarmOption,
    MasterOption,
    OutputFormat,
    RemoteOption,
    spark_settings,
)
from quorate.cli.terminal import counted, print_table
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.manifests.manifest import Manifest, TopicEntry
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.holds import HoldLedger
    from quorate.backup.spark.session.settings import SparkSettings
    from quorate.backup.spark.upkeep.verification import Inventory, VerificationReport


def list_backups(
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str | None, typer.Option(help="Show what is in this one.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """List the backups in a storage, or the topics of one."""
    from quorate.backup.objects.storage import StorageLocation

    root = StorageLocation(storage, endpoint)
    if backup_id is None:
        _list_all(root, output_format)
    else:
        _show_one(root, _latest(root, backup_id), output_format)


def _list_all(root: "StorageLocation", output_format: OutputFormat) -> None:
    from quorate.backup.manifests.catalog import list_backup_ids
    from quorate.backup.objects.opening import open_storage

    opened = open_storage(root)
    opened.check_reachable()
    rows: list[dict[str, Any]] = []
    unreadable: list[str] = []
    for backup_id in list_backup_ids(opened):
        try:
            rows.append(_summary(_latest(root, backup_id)) | {"held": len(_holds(root, backup_id).holds())})
        except QuorateError as error:
            unreadable.append(str(error))
            rows.append({"backup_id": backup_id, "state": "unreadable"})
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(rows).decode())
    else:
        print_table(
            [
                "backup",
                "time",
                "manifest",
                "topics",
                "partitions",
                "records",
                "stored",
                "gaps",
                "recreated",
                "held",
                "state",
            ],
            [
                [
                    row["backup_id"],
                    row.get("time", "-"),
                    row.get("manifest", "-"),
                    row.get("topics", "-"),
                    row.get("partitions", "-"),
                    _count(row),
                    format_bytes(row["bytes"]) if "bytes" in row else "-",
                    row.get("gaps") or "-",
                    len(row.get("recreated", [])) or "-",
                    row.get("held") or "-",
                    row["state"],
                ]
                for row in rows
            ],
        )
        print(f"{counted(len(rows), 'backup')}")
    for message in unreadable:
        print(f"quorate: {message}", file=sys.stderr)
    if unreadable:
        raise typer.Exit(1)


def _show_one(root: "StorageLocation", manifest: "Manifest", output_format: OutputFormat) -> None:
    from quorate.backup.objects.stored_documents import one_line

    topics = [_topic(topic) for topic in manifest.topics]
    ledger = _holds(root, manifest.backup_id)
    holds = [
        {"manifest": number, "since": _time(each.since_ms), "reason": each.reason}
        for number, each in ledger.holds().items()
    ]
    manifests = _catalog(root, manifest.backup_id).numbers()
    if output_format is OutputFormat.JSON:
        failures = msgspec.to_builtins(manifest.failures)
        groups = [{"group": group.group, "offsets": len(group.offsets)} for group in manifest.groups]
        whole = {"topics": topics, "groups": groups, "failures": failures, "manifests": manifests, "holds": holds}
        print(msgspec.json.encode(_summary(manifest) | whole).decode())
        return
    summary = _summary(manifest)
    print(
        f"backup {manifest.backup_id}: {summary['state']}, manifest {manifest.number}, "
        f"cluster {one_line(manifest.cluster_id)}, captured {summary['time']}, "
        f"{manifest.settings.mode}, {manifest.settings.isolation}"
    )
    print_table(
        ["topic", "partitions", "records", "stored", "from", "to", "gaps"],
        [
            [
                f"{topic['topic']} (life {topic['generation']})" if topic["generation"] > 1 else topic["topic"],
                topic["partition_count"],
                _count(topic),
                format_bytes(topic["bytes"]),
                topic["from"] or "-",
                topic["to"] or "-",
                len(topic["gaps"]),
            ]
            for topic in topics
        ],
    )
    for topic in topics:
        for gap in topic["gaps"]:
            where = f"{topic['topic']}-{gap['partition']} offsets {gap['start_offset']} to {gap['end_offset'] - 1}"
            print(f"gap: {where} ({gap['reason']}) {one_line(gap['detail'])}".rstrip())
    for name in summary["recreated"]:
        lives = max(topic["generation"] for topic in topics if topic["topic"] == name)
        print(f"recreated: {name} is in its life {lives}: what was written to an old one after its last run is lost")
    for failure in manifest.failures:
        where = one_line(failure.topic or failure.group or "cluster")
        place = where if failure.partition is None else f"{where}-{failure.partition}"
        print(f"failed: {place}: {one_line(failure.message)}")
    for hold in holds:
        print(f"held: manifest {hold['manifest']} since {hold['since']} {one_line(str(hold['reason']))}".rstrip())
    for damaged in ledger.damages():
        print(f"damaged: {one_line(damaged.message)}")
    print(f"manifests: {_ranges(manifests)}")
    if manifest.groups:
        print(f"{len(manifest.groups)} consumer groups with their offsets")
    print(f"{counted(len(topics), 'topic')}, {counted(len(manifest.failures), 'failure')}")


def _catalog(root: "StorageLocation", backup_id: str) -> "ManifestCatalog":
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage

    check_backup_id(backup_id)
    return ManifestCatalog(open_storage(root.below(backup_id)), backup_id)


def _holds(root: "StorageLocation", backup_id: str) -> "HoldLedger":
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.retention.holds import HoldLedger, holds_location

    return HoldLedger(open_storage(holds_location(root, backup_id)), backup_id)


def _latest(root: "StorageLocation", backup_id: str) -> "Manifest":
    manifest = _catalog(root, backup_id).latest()
    if manifest is None:
        raise QuorateError(f"there is no backup {backup_id} in {root.url}")
    return manifest


def _summary(manifest: "Manifest") -> dict[str, Any]:
    from quorate.backup.spark.copy.run_report import is_count_exact, losses, state_of, topic_bytes, topic_records

    return {
        "backup_id": manifest.backup_id,
        "time": _time(manifest.captured_ms),
        "manifest": manifest.number,
        "cluster_id": manifest.cluster_id,
        "topics": len(manifest.topics),
        "partitions": sum(len(topic.partitions) for topic in manifest.topics),
        "records": sum(topic_records(topic) for topic in manifest.topics),
        "records_exact": all(is_count_exact(topic) for topic in manifest.topics),
        "bytes": sum(topic_bytes(topic) for topic in manifest.topics),
        "gaps": sum(len(losses(topic)) for topic in manifest.topics),
        "recreated": sorted({topic.name for topic in manifest.topics if topic.generation > 1}),
        "state": state_of(manifest),
    }


def _topic(topic: "TopicEntry") -> dict[str, Any]:
    from quorate.backup.spark.copy.run_report import is_count_exact, losses, topic_bytes, topic_records

    segments = [segment for partition in topic.partitions for segment in partition.segments]
    earliest = min((each.min_timestamp for each in segments if each.min_timestamp is not None), default=None)
    latest = max((each.max_timestamp for each in segments if each.max_timestamp is not None), default=None)
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "generation": topic.generation,
        "partition_count": topic.partition_count,
        "records": topic_records(topic),
        "records_exact": is_count_exact(topic),
        "bytes": topic_bytes(topic),
        "from": None if earliest is None else _time(earliest),
        "to": None if latest is None else _time(latest),
        "configs": topic.configs,
        "partitions": [
            {
                "partition": partition.partition,
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
                "captured_end_offset": partition.captured_end_offset,
                "segments": len(partition.segments),
            }
            for partition in topic.partitions
        ],
        "gaps": [
            {
                "partition": found.partition,
                "start_offset": found.gap.start_offset,
                "end_offset": found.gap.end_offset,
                "reason": str(found.gap.reason),
                "detail": found.gap.detail,
            }
            for found in losses(topic)
        ],
    }


def _count(row: dict[str, Any]) -> str:
    if "records" not in row:
        return "-"
    return f"{row['records']:,}" if row["records_exact"] else f"at most {row['records']:,}"


def _time(milliseconds: int) -> str:
    """A record's time is whatever its producer has set, and need not be a date of this calendar."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _ranges(numbers: list[int]) -> str:
    """1-4, 7: those in a row together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def verify(  # noqa: PLR0917 - typer calls it by name
    storage: Annotated[str, typer.Option(help="Where the backups are: file:///…, s3://…, gs://…, az://…")],
    backup_id: Annotated[str, typer.Option(help="Which backup.")],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open every frame and check every batch, on Spark.")
    ] = False,
    newest_only: Annotated[
        bool, typer.Option("--newest-only", help="Leave out older manifests, and what only they name.")
    ] = False,
    endpoint: Annotated[str | None, typer.Option(help="Address of an S3-compatible storage.")] = None,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    keep_warm: KeepWarmOption = None,
    output_format: FormatOption = OutputFormat.TEXT,
) -> None:
    """Check that every object of a backup is there and is what was written."""
    from quorate.backup.config import check_backup_id
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.objects.opening import open_storage
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.restore.ledger import RestoreLedger, restores_below
    from quorate.backup.retention.holds import HoldLedger, holds_location
    from quorate.backup.spark.upkeep.verification import damages_beside, take_inventory, verify_quickly, without_pruned

    check_backup_id(backup_id)
    root = StorageLocation(storage, endpoint)
    location = root.below(backup_id)
    opened = open_storage(location)
    catalog = ManifestCatalog(opened, backup_id)
    inventory = take_inventory(catalog, newest_only=newest_only)
    if inventory is None:
        raise QuorateError(f"there is no backup {backup_id} in {storage}")
    holds = HoldLedger(open_storage(holds_location(root, backup_id)), backup_id)
    restores = RestoreLedger(open_storage(restores_below(root, backup_id)))
    beside = damages_beside(holds, restores, backup_id)
    inventory = msgspec.structs.replace(inventory, damages=[*inventory.damages, *beside])
    with (
        interruptible("not everything was verified"),
        ProgressDisplay("verify", is_quiet=output_format is OutputFormat.JSON) as display,
    ):
        if deep:
            report = _verify_deeply(location, inventory, display, spark_settings(master, remote, conf, keep_warm))
        else:
            _begin(display, inventory, [entry.size_bytes for entry in inventory.segments])
            report = verify_quickly(opened, inventory, display)
        report = without_pruned(report, catalog)
    _show_report(report, output_format)
    if report.damages:
        raise typer.Exit(1)


def _verify_deeply(
    location: "StorageLocation",
    inventory: "Inventory",
    display: ProgressDisplay,
    settings: "SparkSettings",
) -> "VerificationReport":
    from quorate.backup.spark.session.spark_session import open_spark
    from quorate.backup.spark.upkeep.verification import pack_segments, verify_on_spark

    display.phase("starting Spark")
    with open_spark(settings, f"quorate verify {inventory.backup_id}", display.say) as spark:
        tasks = pack_segments(inventory.segments)
        _begin(display, inventory, [sum(entry.size_bytes for entry in task) for task in tasks])
        return verify_on_spark(spark, location, inventory, display)


def _begin(display: ProgressDisplay, inventory: "Inventory", task_bytes: list[int]) -> None:
    from quorate.backup.spark.run_progress import RunProgress

    display.say(f"{counted(len(inventory.segments), 'object')} of {counted(inventory.manifest_count, 'manifest')}")
    display.begin(RunProgress(task_bytes, [frozenset()] * len(task_bytes), 0))


def _show_report(report: "VerificationReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    from quorate.backup.objects.stored_documents import one_line

    for damage in report.damages:
        print(f"damaged: {one_line(damage.message)}")
    print(_report_line(report), flush=True)


def _report_line(report: "VerificationReport") -> str:
    """What was looked at, and no more than that."""
    read = report.manifests - report.unreadable_manifests
    which = "the newest manifest" if report.newest_only else f"{read} manifest{'' if read == 1 else 's'}"
    if report.unreadable_manifests:
        which = f"{read} of {report.manifests} manifests"
    name = f"backup {report.backup_id}, manifest {report.manifest_number}"
    begin = f"{name}: {counted(report.objects, 'object')} of {which}"
    sound = f"{len(report.damages)} damaged, {format_bytes(report.size_bytes)}"
    if report.record_count is None:
        return f"{begin}, {sound} with the right size and SHA-256 (no batch was opened: --deep checks each of them)"
    return f"{begin}, {sound} and {counted(report.record_count, 'record')} sound, every batch checked"
