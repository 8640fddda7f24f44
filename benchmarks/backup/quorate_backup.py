"""The contender Quorate: runs of the backup on a Spark session that is open, as ``quorate backup`` does them."""

import os
from collections.abc import Sequence

import yaml

from benchmarks.contenders.jobs import Copied, Job, serve_jobs
from quorate.backup.config import parse_backup_config
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.planning.planner import Plan
from quorate.backup.spark.copy.backup_run import BackupRuns, client_config
from quorate.backup.spark.session.job import SparkDriver
from quorate.backup.spark.session.settings import SparkSettings
from quorate.backup.spark.session.spark_session import open_spark
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance


class _Nobody:
    """Watches no run: there is no terminal."""

    def planned(self, plan: Plan) -> None:
        pass

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        pass

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        pass

    def phase(self, name: str) -> None:
        pass


def back_up(spark: SparkDriver, job: Job) -> Copied:
    config = parse_backup_config(yaml.safe_dump(_config(job)), {}, "backup.yaml")
    catalog = ManifestCatalog(open_storage(config.location), config.backup_id)
    runs = BackupRuns(config, client_config(config), catalog, lambda: spark)
    report = runs.run(_Nobody())
    assert report is not None
    assert report.state == "complete", report
    return Copied(records=report.record_count, peak_task_memory_bytes=report.peak_task_memory_bytes)


def _config(job: Job) -> dict[str, object]:
    return {
        "backup_id": "benchmark",
        "source": {"bootstrap_servers": job.bootstrap.split(","), "topics": {"include": list(job.topics)}},
        "storage": {"url": f"file://{job.folder}"},
        "backup": {"compression": job.backup_compression, "mode": job.backup_mode},
    }


def main() -> None:
    with open_spark(SparkSettings(master=f"local[{os.cpu_count()}]"), "benchmark", lambda _: None) as spark:
        serve_jobs(lambda job: back_up(spark, job), Job)


if __name__ == "__main__":
    main()
