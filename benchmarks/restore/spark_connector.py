"""The contender Spark connector: Parquet files to Spark's own Kafka sink, on a session with Spark's defaults.

Its producer is set as the producer loop's is; ``acks=all`` and idempotence are its defaults. The sink cannot set a
record's time, so it writes less than the others.
"""

import sys

from pyspark.sql import SparkSession

from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.contenders.topics import BATCH_BYTES, LINGER_MS
from benchmarks.restore.restore_job import RestoreJob


def write_topic(session: SparkSession, job: RestoreJob) -> Copied:
    records = session.read.parquet(job.folder).select("key", "value", "partition")
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "kafka.linger.ms": str(LINGER_MS),
        "kafka.batch.size": str(BATCH_BYTES),
        "kafka.compression.type": job.producer_compression,
        "topic": job.target_topic,
    }
    records.write.format("kafka").options(**options).save()
    return Copied(records=job.records)


def main() -> None:
    (jars,) = sys.argv[1:]
    builder = SparkSession.builder.appName("benchmark").master("local[*]")
    session = builder.config("spark.jars", jars).config("spark.ui.enabled", "false").getOrCreate()
    serve_jobs(lambda job: write_topic(session, job), RestoreJob)
    session.stop()


if __name__ == "__main__":
    main()
