"""The contender Quorate: runs of the restore on a Spark session that is open, as ``quorate restore`` does them."""

import os
from collections.abc import Sequence

import yaml

from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.restore.restore_job import RestoreJob
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.restore.config import parse_restore_config
from quorate.backup.restore.ledger import RestoreLedger, restores_location
from quorate.backup.spark.restore.restore_run import RestoreRun
from quorate.backup.spark.restore.target import target_client_config
from quorate.backup.spark.session.job import SparkDriver
from quorate.backup.spark.session.settings import SparkSettings
from quorate.backup.spark.session.spark_session import open_spark
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance


class _Nobody:
    """Watches no run: there is no terminal."""

    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        pass

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        pass

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        pass

    def phase(self, name: str) -> None:
        pass


def restore(spark: SparkDriver, job: RestoreJob) -> Copied:
    config = parse_restore_config(config_text(job), {}, "restore.yaml")
    catalog = ManifestCatalog(open_storage(config.location), config.backup_id)
    ledger = RestoreLedger(open_storage(restores_location(config)))
    run = RestoreRun(config, target_client_config(config), catalog, ledger, lambda: spark)
    return Copied(records=run.run(_Nobody()).written_records)


def config_text(job: RestoreJob) -> str:
    """The restore's YAML file."""
    config = {
        "backup_id": "benchmark",
        "target": {"bootstrap_servers": job.bootstrap.split(",")},
        "storage": {"url": f"file://{job.folder}"},
        "restore": {
            "topics": {"include": list(job.topics)},
            "topic_mapping": dict(zip(job.topics, job.target_topics, strict=True)),
            "replication_factor": 1,
        },
    }
    return str(yaml.safe_dump(config))


def main() -> None:
    with open_spark(SparkSettings(master=f"local[{os.cpu_count()}]"), "benchmark", lambda _: None) as spark:
        serve_jobs(lambda job: restore(spark, job), RestoreJob)


if __name__ == "__main__":
    main()
