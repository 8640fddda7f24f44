"""Which partition of its internal topic holds a group or a transactional id: by Java's hash, as in Apache Kafka.

Clients never compute it, but tools and restored logs rely on it.
"""

from quorate.kernel.ids import GroupId, PartitionIndex, TransactionalId

_SMALLEST_INT32 = -(2**31)


def partition_for(name: GroupId | TransactionalId, partition_count: int) -> PartitionIndex:
    value = java_string_hash(name)
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
