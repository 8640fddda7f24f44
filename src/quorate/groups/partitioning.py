"""Which partition of ``__consumer_offsets`` holds a group. Pure.

Clients never compute this, but tools and restored logs rely on Kafka's placement, so the hash is Java's.
"""

from quorate.kernel.ids import GroupId, PartitionIndex

_SMALLEST_INT32 = -(2**31)


def partition_for_group(group_id: GroupId, partition_count: int) -> PartitionIndex:
    value = java_string_hash(group_id)
    # The smallest int32 has no positive counterpart in Java; Kafka takes 0 for it.
    magnitude = 0 if value == _SMALLEST_INT32 else abs(value)
    return PartitionIndex(magnitude % partition_count)


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: base 31 over UTF-16 code units, wrapped to a signed 32-bit number."""
    code_units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(code_units), 2):
        value = (31 * value + (code_units[index] << 8 | code_units[index + 1])) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value
