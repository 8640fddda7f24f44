"""The consumer group protocol (KIP-848): the coordinator assigns partitions, members heartbeat towards it.

``heartbeat`` decides what one ConsumerGroupHeartbeat changes; ``group.ConsumerGroup`` is what the records add up to. A
decision's records count for the next decision at once; the answer waits until they are durable.
"""
