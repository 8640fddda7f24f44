"""The contender Spark connector: Spark's own Kafka source, written as Parquet, on a session with Spark's defaults."""

import sys
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, Job, serve_jobs


def write_parquet(session: SparkSession, job: Job) -> None:
    topics = ",".join(job.topics)
    source = session.read.format("kafka").option("kafka.bootstrap.servers", job.bootstrap).option("subscribe", topics)
    bounded = source.option("startingOffsets", "earliest").option("endingOffsets", "latest")
    bounded.load().write.mode("overwrite").parquet(job.folder)


def count_records(folder: Path) -> int:
    """From the footers of the files, so that nothing is read twice."""
    return sum(int(pyarrow.parquet.read_metadata(path).num_rows) for path in folder.glob("*.parquet"))


def main() -> None:
    (jars,) = sys.argv[1:]
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()

    def work(job: Job) -> Copied:
        write_parquet(session, job)
        return Copied(records=count_records(Path(job.folder)))

    serve_jobs(work, Job)
    session.stop()


if __name__ == "__main__":
    main()
