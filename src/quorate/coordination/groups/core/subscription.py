"""Reads the topics out of a consumer's subscription, the one part of member metadata the coordinator looks into.

The bytes are ``ConsumerProtocolSubscription``: a version, then the topics, then fields that later versions append.
"""

import struct

from quorate.kernel.ids import TopicName

CONSUMER_PROTOCOL_TYPE = "consumer"


class InvalidSubscription(ValueError):
    """The bytes are no subscription; the group may use a protocol of its own."""


def subscribed_topics(metadata: bytes) -> frozenset[TopicName]:
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0 or count > len(metadata):
            raise InvalidSubscription(f"version {version}, {count} topics in {len(metadata)} bytes")
        topics: set[TopicName] = set()
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(name) != length:
                raise InvalidSubscription(f"topic name of {length} bytes at {position}")
            topics.add(TopicName(name.decode()))
            position += 2 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidSubscription(str(error)) from error
    return frozenset(topics)
