"""The contender limit: batches that are ready, on a session like Quorate's. Its arguments: rows, tasks."""

import os
import sys

from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, Job, serve_jobs
from benchmarks.data_source.reading import drain
from benchmarks.data_source.ready_source import FORMAT, ReadySource


def main() -> None:
    rows, tasks = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.dataSource.register(ReadySource)

    def read(_: Job) -> Copied:
        return drain(session.read.format(FORMAT).option("rows", rows).option("tasks", tasks).load())

    serve_jobs(read, Job)
    session.stop()


if __name__ == "__main__":
    main()
