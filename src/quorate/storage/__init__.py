"""The partition log on disk, in Kafka's own format. Blocking and synchronous: no event loop, no clock of its own.

``PartitionLog`` (``log.py``) is what a broker uses; the other modules each own one idea behind it.
"""
