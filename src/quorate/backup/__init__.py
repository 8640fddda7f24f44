"""The backup: segment format, manifest, planner and rules (pure), and the object storage they are kept in.

Nothing here talks to Kafka or to Spark. What is known about a cluster comes in as plain values, and what has to be
done goes out as plain values. Only ``storage``, ``local_storage``, ``cloud_storage``, ``segment_sink`` and
``manifest_catalog`` do I/O, all of it through the storage.
"""
