"""``quorate list-backups``: which backups a storage holds, and what is in one of them."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from quorate.cli.progress_display import format_bytes
from quorate.cli.spark_options import FormatOption, OutputFormat
from quorate.cli.terminal import counted, print_table
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.manifests.catalog import ManifestCatalog
    from quorate.backup.manifests.manifest import Manifest, TopicEntry
    from quorate.backup.objects.storage import StorageLocation
    from quorate.backup.retention.holds import HoldLedger


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
