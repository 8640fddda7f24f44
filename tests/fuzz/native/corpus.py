"""The inputs that the fuzz of the native module changes, by target."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from quorate.kernel.ids import Offset
from quorate.records.batch import TimestampType
from quorate.records.builder import build_batch
from quorate.records.record import NO_TIMESTAMP, Record
from tests.unit.client.region_bytes import random_region


def _bytes_of_many_sizes() -> list[bytes]:
    source = random.Random(1)
    return [source.randbytes(size) for size in (0, 1, 8, 64, 767, 768, 1000, 12_288, 12_300, 30_000)]


def _plain_batches() -> list[bytes]:
    """As columns are made of: without compression."""
    headers = (("h", b"value"), ("h", None), ("", b""), ("other", bytes(130)))
    whole = [Record(Offset(at), 1_700_000_000_000 + at, b"key %d" % at, bytes(at)) for at in range(9)]
    odd = [
        Record(Offset(2**40), 5, None, None),
        Record(Offset(2**40 + 3), NO_TIMESTAMP, b"", b"", headers),
        Record(Offset(2**40 + 2000), 2**62, None, bytes(300), headers[:1]),
    ]
    end = [Record(Offset(2**63 - 3), 2**63 - 1, b"k", b"v")]
    stamped = build_batch(odd, base_offset=odd[0].offset, timestamp_type=TimestampType.LOG_APPEND_TIME)
    batches = [build_batch(whole), build_batch(odd, base_offset=odd[0].offset), stamped]
    batches += [build_batch(end, base_offset=end[0].offset), build_batch([], last_offset_delta=3)]
    return [*batches, b"".join(batches[:3]), b"".join(batches)]


def _regions() -> list[bytes]:
    """As fetched: batches of all kinds, and what stands at the end of the offsets."""
    chances = [random.Random(seed) for seed in range(12)]
    usual = [random_region(chance, batch_count=8, rare=0.2) for chance in chances]
    last = [random_region(chance, base_offset=2**63 - 9, batch_count=8) for chance in chances[:3]]
    return [*usual, *last, b"".join(usual[:3])]


def _plain_regions() -> list[bytes]:
    """As plain frames are."""
    return [random_region(random.Random(seed), batch_count=8, rare=0.0) for seed in range(12)]


SEEDS: Final[dict[str, Callable[[], Sequence[bytes]]]] = {
    "columns": _plain_batches,
    "crc32c": _bytes_of_many_sizes,
    "regions": _regions,
    "restored": _plain_regions,
}
