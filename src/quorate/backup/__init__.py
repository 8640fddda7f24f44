"""The backup: segment format, manifest, planner and rules (pure), and the object storage they are kept in.

Nothing here talks to Kafka or to Spark. What is known about a cluster comes in as plain values, and what has to be
done goes out as plain values. Only ``local_storage`` and ``cloud_storage`` do I/O themselves; ``segment_sink``,
``range_recorder`` and ``manifest_catalog`` do theirs through the storage that they are given.
"""
