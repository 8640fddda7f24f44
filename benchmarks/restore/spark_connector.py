"""The contender Spark connector: Parquet files to Spark's own Kafka sink, on a session with Spark's defaults.

Its producer is set as the producer loop's is; ``acks=all`` and idempotence are its defaults. The sink cannot set a
record's time, so it writes less than the others.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat, lit

from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.contenders.topics import BATCH_BYTES, LINGER_MS
from benchmarks.restore.restore_job import TARGET_PREFIX, RestoreJob


def write_topic(session: SparkSession, job: RestoreJob) -> Copied:
    columns = [col("key"), col("value"), col("partition")]
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "kafka.linger.ms": str(LINGER_MS),
        "kafka.batch.size": str(BATCH_BYTES),
        "kafka.compression.type": job.producer_compression,
    }
    if len(job.target_topics) == 1:
        options["topic"] = job.target_topics[0]
    else:
        columns.append(concat(lit(TARGET_PREFIX), col("topic")).alias("topic"))
    records = session.read.parquet(job.folder).select(columns)
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
