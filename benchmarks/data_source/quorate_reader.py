"""The contender Quorate: the data source on a session with Spark's defaults, as its users have."""

import os
import sys

from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, Job, serve_jobs
from benchmarks.data_source.reading import drain
from quorate.spark import register


def read(session: SparkSession, job: Job) -> Copied:
    topics = ",".join(job.topics)
    source = session.read.format("quorate").option("bootstrap_servers", job.bootstrap).option("topics", topics)
    return drain(source.load())


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(session)
    serve_jobs(lambda job: read(session, job), Job)
    session.stop()


if __name__ == "__main__":
    main()
