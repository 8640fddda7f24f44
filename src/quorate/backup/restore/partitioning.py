"""Which partition a record goes to when a topic gets another number of them: Kafka's default partitioner."""

from functools import lru_cache
from typing import Final

from quorate.kernel.ids import PartitionIndex

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SIGN_MASK: Final = 0x7FFFFFFF
_REMEMBERED_KEYS: Final = 65_536


def partition_of(key: bytes | None, source_partition: int, partition_count: int) -> PartitionIndex:
    """The same as every producer with the default partitioner gives; records without a key of one partition stay
    together, and so in their order."""
    if key is None:
        return PartitionIndex(source_partition % partition_count)
    return PartitionIndex((murmur2(key) & _SIGN_MASK) % partition_count)


@lru_cache(_REMEMBERED_KEYS)
def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, with the seed that Kafka's Java client uses; unsigned."""
    digest = _SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15
