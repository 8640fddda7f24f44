"""The contender Quorate: the data source on a session as ``quorate export`` opens it."""

import os

from pyspark.sql import SparkSession

from benchmarks.backup.jobs import Copied, Job, serve_jobs
from benchmarks.data_source.reading import drain
from quorate.pipeline.spark_session import open_spark
from quorate.pipeline.spark_settings import SparkSettings
from quorate.spark import register


class _Nobody:
    def tasks_counted(self, finished_count: int, task_count: int) -> None:
        """There is no terminal."""


def read(session: SparkSession, job: Job) -> Copied:
    (topic,) = job.topics
    source = session.read.format("quorate").option("bootstrap_servers", job.bootstrap).option("topics", topic)
    return drain(source.load())


def main() -> None:
    with open_spark(SparkSettings(master=f"local[{os.cpu_count()}]"), "benchmark", lambda _: None) as spark:
        spark.query(register, _Nobody())
        serve_jobs(lambda job: spark.query(lambda session: read(session, job), _Nobody()))


if __name__ == "__main__":
    main()
