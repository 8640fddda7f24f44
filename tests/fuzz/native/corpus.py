"""The inputs that the fuzz of the native module changes, by target."""

import random
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from quorate.kernel.ids import Offset
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.protocol.schema import Request
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


def _requests() -> list[bytes]:
    """Of the shape that native code reads, in versions that differ; and what they carry."""
    batch = build_batch([Record(Offset(0), 1, b"key", b"value")])
    data = (PartitionProduceData(index=1, records=batch),)
    named, by_id = {"name": "topic"}, {"topic_id": UUID(int=7)}
    requests: list[tuple[Request, int]] = []
    for version in (3, 8, 9, 12, 13):
        topic = TopicProduceData(partition_data=data, **(named if version < 13 else by_id))
        requests.append((ProduceRequest(transactional_id="id", acks=-1, topic_data=(topic,)), version))
    partitions = (FetchPartition(partition=1, fetch_offset=5, partition_max_bytes=100),)
    for version in (4, 7, 11, 12, 17):
        by_name = FetchTopic(topic="topic", partitions=partitions)
        fetched = by_name if version < 13 else FetchTopic(topic_id=UUID(int=7), partitions=partitions)
        requests += [(FetchRequest(topics=(fetched,)), version), (FetchRequest(max_wait_ms=5), version)]
    frames = [b"".join(encode_request(1, "client", request, version))[4:] for request, version in requests]
    return [*frames, batch]


def _answers() -> list[bytes]:
    """What is in them: numbers, and a name behind them."""
    source = random.Random(2)
    return [source.randbytes(46 + size) for size in (0, 1, 5, 16, 126, 127, 249, 250)]


SEEDS: Final[dict[str, Callable[[], Sequence[bytes]]]] = {
    "answers": _answers,
    "columns": _plain_batches,
    "crc32c": _bytes_of_many_sizes,
    "regions": _regions,
    "restored": _plain_regions,
    "produced": _requests,
}
