"""The Spark program of ``test_spark``: its arguments are jars, settings of clients, topics and a folder.

A process of its own: Spark's connector must be on the class path when the JVM starts. Prints one JSON object.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

ROWS = 1000
# Start-up counts more than speed at full heat.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> None:
    jars, clients, batch_topic, source_topic, target_topic, folder = sys.argv[1:]
    session = SparkSession.builder.master("local[2]").config(map={**SETTINGS, "spark.jars": jars}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    queries = Queries(session, json.loads(clients))
    results = {
        "batch": queries.batch(batch_topic),
        "streaming": queries.streaming(source_topic, target_topic, Path(folder)),
    }
    session.stop()
    print(json.dumps(results))


class Queries:
    def __init__(self, session: SparkSession, clients: dict[str, str]) -> None:
        self._session = session
        self._kafka = {f"kafka.{name}": value for name, value in clients.items()}

    def batch(self, topic: str) -> dict[str, Any]:
        self._write(self._numbered(0, ROWS), topic)
        rows = self._read(topic).collect()
        return {
            "rows": sorted((row.key, row.value, row.headers) for row in rows),
            "partitions": sorted({row.partition for row in rows}),
            "offsets": sorted(row.offset for row in rows if row.partition == 0),
        }

    def streaming(self, source: str, target: str, folder: Path) -> dict[str, Any]:
        """Two runs with one checkpoint: the second goes on where the first has stopped."""
        seen = []
        for start in (0, ROWS):
            self._write(self._numbered(start, start + ROWS), source)
            self._run_stream(source, target, folder)
            seen.append(sorted(row.value for row in self._read(target).collect()))
        return {"after_first": seen[0], "after_second": seen[1]}

    def _run_stream(self, source: str, target: str, folder: Path) -> None:
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS // 2)}
        stream = self._session.readStream.format("kafka").options(**self._kafka, **options).load()
        doubled = stream.select(f.col("key"), (_number("value") * 2).cast("string").alias("value"))
        writer = doubled.writeStream.format("kafka").options(**self._kafka, topic=target)
        query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        query.awaitTermination()

    def _numbered(self, start: int, stop: int) -> DataFrame:
        number = f.col("id").cast("string")
        header = f.struct(f.lit("kind").alias("key"), f.lit(b"number").alias("value"))
        key = f.concat(f.lit("key-"), number).alias("key")
        return self._session.range(start, stop).select(key, number.alias("value"), f.array(header).alias("headers"))

    def _write(self, rows: DataFrame, topic: str) -> None:
        rows.write.format("kafka").options(**self._kafka, topic=topic, includeHeaders="true").save()

    def _read(self, topic: str) -> DataFrame:
        options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
        read = self._session.read.format("kafka").options(**self._kafka, **options).load()
        headers = f.transform("headers", lambda each: f.concat(each.key, f.lit("="), each.value.cast("string")))
        return read.select(
            f.col("key").cast("string").alias("key"),
            _number("value").alias("value"),
            headers.alias("headers"),
            "partition",
            "offset",
        )


def _number(name: str) -> Column:
    return f.col(name).cast("string").cast("int")


if __name__ == "__main__":
    main()
