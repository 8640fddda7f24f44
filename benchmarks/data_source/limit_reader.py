"""The contender limit: batches that are ready, on a session like Quorate's."""

import os
import sys

from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.data_source.read_job import ReadJob
from benchmarks.data_source.reading import drain
from benchmarks.data_source.ready_source import FORMAT, ReadySource


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.dataSource.register(ReadySource)

    def read(job: ReadJob) -> Copied:
        source = session.read.format(FORMAT).option("rows", str(job.records)).option("tasks", str(job.tasks))
        return drain(source.option("value_bytes", str(job.value_size_bytes)).load())

    serve_jobs(read, ReadJob)
    session.stop()


if __name__ == "__main__":
    main()
