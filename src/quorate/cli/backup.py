"""``quorate backup``: copy a cluster's topics into object storage, on Spark."""

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from quorate.cli.interruption import INTERRUPTED_STATUS, interruptible
from quorate.cli.options import (
    COPY_TIMEOUT_S,
    CommandConfigOption,
    TimeoutOption,
    read_client_properties,
    read_settings_file,
)
from quorate.cli.progress_display import ProgressDisplay, format_bytes
from quorate.cli.spark import (
    ConfOption,
    FormatOption,
    KeepWarmOption,
    MasterOption,
    OutputFormat,
    RemoteOption,
    spark_settings,
    spark_when_needed,
)
from quorate.cli.terminal import counted
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from quorate.backup.config import BackupConfig
    from quorate.backup.objects.storage import ObjectStorage
    from quorate.backup.spark.copy.run_report import RunReport
    from quorate.backup.spark.session.settings import SparkSettings
    from quorate.backup.spark.upkeep.maintenance import Maintenance

_HOUR_MS = 3_600_000
_SHOWN_PROBLEMS = 20
_MAX_PAUSE_S = 60.0
# All that is there was copied, and records that should have been are gone: see docs/backup.md.
LOSSES_STATUS = 3


def backup(  # noqa: PLR0917 - typer calls it by name
    config: Annotated[Path, typer.Option(help="The backup's YAML file.")],
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
    keep_warm: KeepWarmOption = None,
    orphan_age_hours: Annotated[
        float, typer.Option(min=0, help="Delete objects that no manifest names when they are this old.")
    ] = 24.0,
    timeout: TimeoutOption = COPY_TIMEOUT_S,
    output_format: FormatOption = OutputFormat.TEXT,
    command_config: CommandConfigOption = None,
) -> None:
    """Copy topics, byte for byte, from their partition leaders into object storage."""
    from quorate.backup.manifests.manifest import Mode
    from quorate.backup.spark.copy.backup_run import client_config
    from quorate.client.first_contact import require_answer

    settings = read_backup_config(config, command_config)
    is_continuous = settings.backup.mode is Mode.CONTINUOUS
    orphan_age_ms = round(orphan_age_hours * _HOUR_MS)
    found: list[RunReport] = []  # Rounds that came too late for some records.
    try:
        with (
            # A continuous backup has no other end, so a stop is none of a failure.
            interruptible(
                "what was committed stays, and the next run goes on from there",
                status=0 if is_continuous else INTERRUPTED_STATUS,
            ),
            ProgressDisplay("backup", is_quiet=output_format is OutputFormat.JSON) as display,
            contextlib.ExitStack() as stack,
        ):
            require_answer(client_config(settings), timeout, display.say)
            session = _Session(
                settings, spark_settings(master, remote, conf, keep_warm, file=settings.spark), display, stack
            )
            if is_continuous:
                session.run_continuously(output_format, orphan_age_ms, found)
            report = session.run_once(orphan_age_ms)
            show_report(report, output_format)
    except typer.Exit as stop:
        raise typer.Exit(LOSSES_STATUS if found and stop.exit_code == 0 else stop.exit_code) from None
    if report.failures:
        raise typer.Exit(1)
    if report.has_losses:
        raise typer.Exit(LOSSES_STATUS)


def read_backup_config(path: Path, command_config: Path | None = None) -> "BackupConfig":
    from quorate.backup.config import parse_backup_config

    properties = None if command_config is None else read_client_properties(command_config)
    return parse_backup_config(read_settings_file(path), os.environ, str(path), properties)


class _Session:
    """What all runs of one command share. Spark is started when there is something to copy, and not before."""

    def __init__(
        self, config: "BackupConfig", spark: "SparkSettings", display: ProgressDisplay, stack: contextlib.ExitStack
    ) -> None:
        from quorate.backup.manifests.catalog import ManifestCatalog
        from quorate.backup.objects.opening import open_storage
        from quorate.backup.spark.copy.backup_run import BackupRuns, client_config

        self._config = config
        self._display = display
        self._storage: ObjectStorage = open_storage(config.location)
        self._catalog: ManifestCatalog = ManifestCatalog(self._storage, config.backup_id)
        self._start_spark = spark_when_needed(spark, f"quorate backup {config.backup_id}", display, stack)
        self._runs = BackupRuns(config, client_config(config), self._catalog, self._start_spark)

    def run_once(self, orphan_age_ms: int) -> "RunReport":
        self._check_storage()
        report = self._runs.run(self._display)
        assert report is not None, "an unchanged run was to be committed too"
        self._collect_orphans(orphan_age_ms)
        return report

    def _collect_orphans(self, safe_age_ms: int) -> None:
        """The run is committed: what fails here is told, and is no failure of the run."""
        from quorate.backup.errors import BackupError
        from quorate.backup.objects.stored_documents import now_ms
        from quorate.backup.retention.orphans import collect_orphans

        try:
            deleted = collect_orphans(self._storage, self._catalog, now_ms=now_ms(), safe_age_ms=safe_age_ms)
        except BackupError as error:
            self._display.say(f"objects of unfinished runs were not deleted: {error}")
        else:
            if deleted:
                self._display.say(f"{counted(len(deleted), 'object')} of unfinished runs deleted")

    def run_continuously(
        self, output_format: OutputFormat, orphan_age_ms: int, with_losses: "list[RunReport]"
    ) -> NoReturn:
        """Rounds without end. After a first good one, an outage is told and waited out."""
        from quorate.backup.errors import CommitConflict, RequirementFailed
        from quorate.backup.spark.upkeep.maintenance import open_maintenance

        self._check_storage()
        maintenance = open_maintenance(self._config, self._catalog, self._start_spark, self._display.say)
        interval_s = self._config.backup.continuous_interval_ms / 1000
        pause_s, rounds = interval_s, 0
        while True:
            try:
                report = self._runs.run(self._display, commit_unchanged=rounds == 0)
            except (CommitConflict, RequirementFailed):
                raise
            except QuorateError as error:
                if rounds == 0:
                    raise
                self._display.say(f"this round failed and will be tried again: {error}")
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
            else:
                rounds += 1
                self._display.is_brief = True
                pause_s = interval_s
                if report is not None:
                    if report.has_losses and not with_losses:  # Before it is shown: a stop may come meanwhile.
                        with_losses.append(report)
                    show_report(report, output_format)
                if rounds == 1:  # What runs before this one left; this one stops in good order, or is not the last.
                    self._collect_orphans(orphan_age_ms)
                self._maintain(maintenance)
            time.sleep(pause_s)

    def _maintain(self, maintenance: "Maintenance") -> None:
        from quorate.backup.objects.stored_documents import now_ms
        from quorate.backup.spark.upkeep.maintenance import QuietWatcher

        done = maintenance.run_if_due(QuietWatcher(), now_ms=now_ms())
        if done is not None:
            self._display.say(
                f"maintenance: {counted(done.merged, 'small object')} merged, {counted(done.pruned, 'manifest')} and "
                f"{counted(done.deleted, 'object')} deleted"
            )
            if done.problem is not None:
                self._display.say(f"maintenance was stopped and will be tried again: {done.problem}")

    def _check_storage(self) -> None:
        """Before anything is copied: a wrong bucket or a missing permission must not show up at the end."""
        import uuid

        self._catalog.probe(uuid.uuid4().hex)


def show_report(report: "RunReport", output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    for found in report.gaps[:_SHOWN_PROBLEMS]:
        gap = found.gap
        print(
            f"gap: {found.topic}-{found.partition} offsets {gap.start_offset} to {gap.end_offset - 1} ({gap.reason}): "
            f"{gap.detail}"
        )
    for recreated in report.recreated[:_SHOWN_PROBLEMS]:
        print(
            f"recreated: {recreated.topic} was deleted and made again (life {recreated.generation}): "
            "what was written to the old one after its last run is lost"
        )
    for failure in report.failures[:_SHOWN_PROBLEMS]:
        where = failure.topic or failure.group or "cluster"
        print(f"failed: {where}{'' if failure.partition is None else f'-{failure.partition}'}: {failure.message}")
    problems = (report.gaps, report.recreated, report.failures)
    hidden = sum(max(0, len(found) - _SHOWN_PROBLEMS) for found in problems)
    if hidden:
        print(f"and {hidden} more: quorate list-backups --backup-id {report.backup_id}")
    rate = report.batch_bytes / max(report.seconds, 0.001) / 1e6
    print(
        f"backup {report.backup_id}: manifest {report.manifest_number} is {report.state}: "
        f"{counted(report.topics, 'topic')}, {counted(report.partitions, 'partition')}, "
        f"{counted(report.record_count, 'record')}, "
        f"{format_bytes(report.batch_bytes)} ({format_bytes(report.stored_bytes)} stored) "
        f"in {report.seconds:.1f} s ({rate:.1f} MB/s)",
    )
    print(
        f"{counted(len(report.gaps), 'gap')}, {counted(len(report.recreated), 'recreated topic')}, "
        f"{counted(report.truncations, 'truncation')}, {counted(len(report.failures), 'failure')}, "
        f"leaders followed {counted(report.leaders_followed, 'time')}",
        flush=True,
    )
