"""The backup of any Kafka cluster, beside the broker and without it.

What is kept is in ``segments``, ``manifests`` and ``objects``, what is copied in ``planning``, what is brought back in
``restore`` and what is dropped in ``retention``; ``spark`` has the jobs.

Outside of ``spark`` nothing talks to Kafka or to Spark: what is known about a cluster comes in as plain values, and
what has to be done goes out as plain values.
"""
