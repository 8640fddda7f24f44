"""``python -m benchmarks.batch_costs``: CPU time of one batch in a backup and in a restore, natively and in Python.

No broker, no socket and no disk: what was fetched is in memory, what is written is thrown away, and every Produce is
acknowledged at once. Each of the two has a process of its own, in turns with the other; the least of all turns counts.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from random import Random
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec

from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.planning.ranges import OffsetRange
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.outgoing import PartitionAssignment, SourceSegments, outgoing_from
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.client.cluster import Cluster
from quorate.client.config import ClientConfig
from quorate.client.fetch.batches import FetchedBatches, IsolationLevel
from quorate.client.fetch.cursor import FetchCursor
from quorate.client.fetch.regions import check_region
from quorate.client.idempotent_producer import IdempotentProducer, ProducerIdentity
from quorate.client.retries import Backoff, Retries
from quorate.client.routing import Route
from quorate.kernel.address import Address
from quorate.kernel.ids import (
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.kernel.native import SWITCH
from quorate.kernel.ports import Buffer
from quorate.protocol.frames import encode_request
from quorate.protocol.messages.fetch import PartitionData
from quorate.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.records.builder import build_batch
from quorate.records.record import Record

RECORD_COUNTS = (1, 20, 320)
VALUE_BYTES = 200
REGION_BYTES = 4 * 1024 * 1024
REGIONS = 3
_PARTITION = TopicPartition(TopicName("counted"), PartitionIndex(0))
_TOPIC_ID = TopicId(UUID(int=7))
_ROUTE = Route(_PARTITION, _TOPIC_ID, NodeId(1), Address("127.0.0.1", 9092), LeaderEpoch(0))
_PRODUCE_VERSION = 13
_NOW_MS = 1_700_000_000_000


class Cost(NamedTuple):
    record_count: int
    batch_bytes: int
    backup_us: float
    hash_us: float  # What SHA-256 alone takes of it.
    restore_us: float


def main() -> None:
    options = _parse_arguments()
    if options.once:
        sys.stdout.buffer.write(msgspec.json.encode([cost_of(count) for count in RECORD_COUNTS]))
        return
    turns = [(_turn(is_native=True), _turn(is_native=False)) for _ in range(options.turns)]
    for index, count in enumerate(RECORD_COUNTS):
        native, python = (_least([turn[side][index] for turn in turns]) for side in (0, 1))
        print(f"{count} records, {native.batch_bytes:,} bytes a batch (SHA-256 alone {native.hash_us:.2f} us):")
        print(f"    backup   native {native.backup_us:7.2f} us, Python {python.backup_us:7.2f} us")
        print(f"    restore  native {native.restore_us:7.2f} us, Python {python.restore_us:7.2f} us")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_costs", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--once", action="store_true", help="in this process, as JSON")
    return parser.parse_args()


def _turn(*, is_native: bool) -> list[Cost]:
    command = [sys.executable, "-m", "benchmarks.batch_costs", "--once"]
    environment = os.environ | {SWITCH: "1" if is_native else "0"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return msgspec.json.decode(done.stdout, type=list[Cost])


def _least(costs: list[Cost]) -> Cost:
    return Cost(*(min(cast(float, each[field]) for each in costs) for field in range(len(Cost._fields))))  # type: ignore[arg-type]


def cost_of(record_count: int) -> Cost:
    regions = _regions(record_count)
    batch_count = sum(count for _, count in regions)
    size_bytes = sum(len(region) for region, _ in regions)
    storage = _Storage()
    backup_s, _ = _backup(_Storage(keeps=False), regions, batch_count * record_count)
    _, segments = _backup(storage, regions, batch_count * record_count)
    restore_s = _restore(storage, segments)
    started = time.process_time()
    for region, _ in regions:
        hashlib.sha256(region)
    hash_s = time.process_time() - started
    each_us = 1e6 / batch_count
    return Cost(record_count, size_bytes // batch_count, backup_s * each_us, hash_s * each_us, restore_s * each_us)


def _regions(record_count: int) -> list[tuple[bytes, int]]:
    """As they are fetched, and how many batches each has."""
    source, offset, regions = Random(1), 0, []
    values = [source.randbytes(VALUE_BYTES) for _ in range(record_count)]
    size_bytes = len(_batch(values, 0))
    for _ in range(REGIONS):
        count = REGION_BYTES // size_bytes
        regions.append((b"".join(_batch(values, offset + index * record_count) for index in range(count)), count))
        offset += count * record_count
    return regions


def _batch(values: list[bytes], offset: int) -> bytes:
    records = [Record(Offset(offset + index), _NOW_MS + index, None, value) for index, value in enumerate(values)]
    return build_batch(records, base_offset=Offset(offset), leader_epoch=LeaderEpoch(0))


def _backup(storage: "_Storage", regions: list[tuple[bytes, int]], end_offset: int) -> tuple[float, list[SegmentEntry]]:
    whole = OffsetRange(
        topic=_PARTITION.topic,
        topic_id=_TOPIC_ID,
        generation=1,
        partition=_PARTITION.partition,
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(0),
        start_offset=Offset(0),
        end_offset=Offset(end_offset),
        is_first=True,
        is_last=True,
        estimated_bytes=0,
    )
    copier = RangeCopier(
        cast(ObjectStorage, storage),
        whole,
        cluster_id="c",
        attempt="a",
        settings=SegmentSettings(),
        now_ms=lambda: _NOW_MS,
    )
    cursor = FetchCursor(
        copier.fetch_range,
        _retries(),
        max_bytes=REGION_BYTES,
        isolation=IsolationLevel.READ_UNCOMMITTED,
        include_batch_across_end=True,
    )
    started = time.process_time()
    for region, _ in regions:
        answer = PartitionData(high_watermark=end_offset, records=memoryview(region))
        fetched = cursor.take(answer, _ROUTE, alone=True, now_ms=_NOW_MS)
        assert isinstance(fetched, FetchedBatches)
        check_region(fetched.data)
        copier.take(fetched)
    spent = time.process_time() - started
    assert copier.result is not None
    assert copier.record_count == end_offset
    return spent, copier.result.segments


def _restore(storage: "_Storage", segments: list[SegmentEntry]) -> float:
    source = SourceSegments(
        rules=RecordRules(source_partition=_PARTITION.partition, max_batch_bytes=REGION_BYTES),
        excluded=[],
        segments=segments,
        segment_counts=[each.record_count for each in segments],
    )
    assignment = PartitionAssignment(topic=_PARTITION.topic, partition=_PARTITION.partition, sources=[source])
    identity = ProducerIdentity(ProducerId(1), ProducerEpoch(0))
    producer = IdempotentProducer(cast(Cluster, _Acknowledging()), identity)
    started = time.process_time()
    batches = (each.data for each in outgoing_from(cast(ObjectStorage, storage), assignment, 0))
    acknowledged = sum(1 for _ in producer.send_all(*_PARTITION, batches))
    spent = time.process_time() - started
    assert acknowledged == sum(each.batch_count for each in segments)
    return spent


def _retries() -> Retries:
    return Retries(Backoff(initial_ms=1, max_ms=1), 1, Random(1), _NOW_MS)


class _Storage:
    """Hands out views of what it keeps."""

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self._contents: dict[str, bytearray] = {}

    def open_upload(self, name: str) -> "_Upload":
        self._contents[name] = bytearray()
        return _Upload(self._contents[name] if self._keeps else None)

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        return memoryview(self._contents[name])[position : position + length]


class _Upload:
    def __init__(self, content: bytearray | None) -> None:
        self._content = content

    def write(self, pieces: Iterable[Buffer]) -> None:
        if self._content is not None:
            for piece in pieces:
                self._content += piece

    def complete(self) -> None: ...

    def abort(self) -> None: ...


class _Acknowledging:
    """A cluster and its only connection: requests are encoded, and answered at once."""

    config = ClientConfig(bootstrap_servers=("127.0.0.1:9092",))
    is_open = True
    is_done = True
    deadline_ms = _NOW_MS + 1_000
    version = _PRODUCE_VERSION
    address = _ROUTE.address

    @property
    def clock(self) -> Any:
        return self

    @property
    def versions(self) -> Any:
        return self

    def now_ms(self) -> int:
        return _NOW_MS

    def choose(self, *_: object, **__: object) -> int:
        return _PRODUCE_VERSION

    def want(self, _: object) -> None: ...

    def refresh_if_due(self) -> None: ...

    def new_retries(self) -> Retries:
        return _retries()

    def route(self, _: object) -> Route:
        return _ROUTE

    def connection_to(self, _: object) -> Any:
        return self

    def noticing_loss(self, _: object) -> Any:
        return nullcontext()

    def send(self, request: ProduceRequest, _: object, version: int) -> Any:
        encode_request(1, "counter", request, version)
        return self

    def wait(self, *_: object, **__: object) -> ProduceResponse:
        part = PartitionProduceResponse(index=_PARTITION.partition, base_offset=0)
        return ProduceResponse(responses=[TopicProduceResponse(topic_id=_TOPIC_ID, partition_responses=[part])])


if __name__ == "__main__":
    main()
