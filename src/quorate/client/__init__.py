"""A leader-routed Kafka client: blocking, thread-safe, without threads of its own. Works on any Kafka cluster.

Start reading at ``kafka_client`` (what users hold), then ``cluster`` (routing, connections and retries put together)
and ``routing`` (the state machine that knows who leads what, without I/O). ``leader_calls`` sends one request about
many partitions to all their leaders. The rooms: ``connections`` to brokers, ``fetch`` for reading record batches, and
``admin`` for topics, groups and the cluster.
"""
