"""For users of Spark: ``register(spark)`` makes ``spark.read.format("quorate")`` known to a session."""

from pyspark.sql import SparkSession

from quorate.backup.spark.data_source.source import QuorateSource

__all__ = ["QuorateSource", "register"]


def register(spark: SparkSession) -> None:
    """Once for each session. On a cluster or with Spark Connect the workers need the package too: see the manual."""
    spark.dataSource.register(QuorateSource)
