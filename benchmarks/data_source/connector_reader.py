"""The contender Spark connector: Spark's own Kafka source, with headers too, on a session with Spark's defaults."""

import sys

from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, Job, serve_jobs
from benchmarks.data_source.reading import drain


def read(session: SparkSession, job: Job) -> Copied:
    topics = ",".join(job.topics)
    source = session.read.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("subscribe", topics)
    bounded = source.option("startingOffsets", "earliest").option("endingOffsets", "latest")
    return drain(bounded.option("includeHeaders", "true").load())


def main() -> None:
    (jars,) = sys.argv[1:]
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
    serve_jobs(lambda job: read(session, job), Job)
    session.stop()


if __name__ == "__main__":
    main()
