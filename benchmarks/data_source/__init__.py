"""The data source beside Spark's own Kafka source: the same topic into a sink that takes every row and keeps none."""
