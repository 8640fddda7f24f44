"""A leader-routed Kafka client: blocking, thread-safe, without threads of its own. Works on any Kafka cluster.

Start reading at ``kafka_client`` (what users hold), then ``cluster`` (routing, connections and retries put together)
and ``routing`` (the pure machine that knows who leads what).
"""
