"""A segment that claims to be larger than it is costs its reader nothing, and each claim is one sentence."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from cramjam import zstd

from quorate.backup.errors import BatchTooLarge, DamagedSegment
from quorate.backup.segments import layout as segment_layout
from quorate.backup.segments.layout import (
    GATHERED_FRAME_BYTES,
    MAX_COMPRESSED_FRAME_BYTES,
    MAX_FOOTER_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    FrameCodec,
    IndexEntry,
    encode_footer,
    encode_frame_head,
)
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.segments.writer import SegmentWriter
from quorate.kernel.ids import Offset
from tests.unit.backup.batches import BytesSource, BytesUpload, batch, header, summary_of, write_segment

GIB = 1024**3
MIB = 1024**2


@contextmanager
def peak_memory(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit_bytes, f"{peak} bytes at most"


def with_frame(codec: FrameCodec, stored: bytes, *, claims: int, batch_count: int = 1) -> bytes:
    """A whole segment whose only frame says what it likes; all of its CRCs are right."""
    data, _ = write_segment([batch(0, 2)])
    reader = SegmentReader(BytesSource(data))
    head = encode_frame_head(
        codec, stored, payload_size_bytes=claims, batch_count=batch_count, base_offset=0, last_offset=1
    )
    return data[: reader.frames_position] + head + stored + encode_footer(reader.footer)


def read_all(data: bytes) -> None:
    for _ in SegmentReader(BytesSource(data)).batches(check_crcs=True):
        pass


@pytest.mark.parametrize("codec", [FrameCodec.LZ4, FrameCodec.ZSTD])
@pytest.mark.parametrize("claims", [MAX_COMPRESSED_FRAME_BYTES + 1, GIB, 2**32 - 1])
def test_three_stored_bytes_that_claim_4_gib_allocate_nothing(codec: FrameCodec, claims: int) -> None:
    data = with_frame(codec, b"abc", claims=claims)

    with peak_memory(4 * MIB), pytest.raises(DamagedSegment, match=rf"claims {claims} bytes, and no frame of its kind"):
        read_all(data)


@pytest.mark.parametrize("claims", [MAX_COMPRESSED_FRAME_BYTES, GATHERED_FRAME_BYTES, 100])
def test_a_bomb_is_decompressed_no_further_than_its_frame_may_go(claims: int) -> None:
    bomb = bytes(zstd.compress(bytes(256 * MIB), level=1))
    assert len(bomb) < 64 * 1024
    data = with_frame(FrameCodec.ZSTD, bomb, claims=claims)

    with peak_memory(MAX_COMPRESSED_FRAME_BYTES + 4 * MIB), pytest.raises(DamagedSegment, match="cannot be decompress"):
        read_all(data)


def test_a_frame_of_many_batches_is_no_larger_than_a_writer_makes_it() -> None:
    many = b"".join(batch(offset, 1) for offset in range(GATHERED_FRAME_BYTES // 60))
    assert len(many) > GATHERED_FRAME_BYTES
    data = with_frame(FrameCodec.NONE, many, claims=len(many), batch_count=GATHERED_FRAME_BYTES // 60)

    with pytest.raises(DamagedSegment, match="one so large holds a single batch"):
        read_all(data)


def test_batches_that_the_head_does_not_count_are_not_gone_through() -> None:
    many = b"".join(batch(offset, 1) for offset in range(1000))
    data = with_frame(FrameCodec.NONE, many, claims=len(many), batch_count=2)

    with peak_memory(MIB), pytest.raises(DamagedSegment, match="it holds 3 batches, not 2"):
        read_all(data)


def test_batches_out_of_order_inside_a_frame_are_damage() -> None:
    mixed = batch(0, 1) + batch(5, 1) + batch(1, 1)
    data = with_frame(FrameCodec.NONE, mixed, claims=len(mixed), batch_count=3)

    with pytest.raises(DamagedSegment, match="out of order at offset 1"):
        read_all(data)


@pytest.mark.parametrize(
    ("place", "size_bytes"), [("header", MAX_HEADER_BYTES + 1), ("footer", MAX_FOOTER_BYTES + 1), ("footer", 2**32 - 1)]
)
def test_a_header_or_footer_that_is_larger_than_any_is_not_read(place: str, size_bytes: int) -> None:
    data = bytearray(write_segment([batch(0, 2)])[0])
    at = 8 if place == "header" else len(data) - 12
    data[at : at + 4] = size_bytes.to_bytes(4, "big")
    holes = bytes(MAX_FOOTER_BYTES + MIB)  # So large that there would be room for it.

    with pytest.raises(DamagedSegment, match=f"a {place} of {size_bytes} bytes is larger than any"):
        SegmentReader(BytesSource(bytes(data[:50]) + holes + bytes(data[50:])))


INDEXES = {
    "leads out of the frames": [IndexEntry(Offset(0), 10**9, -1)],
    "is not in order: before the frames": [IndexEntry(Offset(0), 3, -1)],
    "is not in order: positions": [IndexEntry(Offset(0), 400, -1), IndexEntry(Offset(1), 300, -1)],
    "is not in order: offsets": [IndexEntry(Offset(1), 300, -1), IndexEntry(Offset(1), 400, -1)],
    "is not in order: times": [IndexEntry(Offset(0), 300, 5), IndexEntry(Offset(1), 400, 4)],
}


@pytest.mark.parametrize("fault", INDEXES)
def test_an_index_that_would_lead_a_reader_astray_is_damage(fault: str) -> None:
    data, _ = write_segment([batch(offset, 1) for offset in range(20)])
    reader = SegmentReader(BytesSource(data))
    footer = msgspec.structs.replace(reader.footer, index=INDEXES[fault])

    with pytest.raises(DamagedSegment, match=fault.partition(":")[0]):
        SegmentReader(BytesSource(data[: reader.footer_position] + encode_footer(footer)))


HOSTILE_NUMBERS: list[dict[str, Any]] = [
    {"start_offset": -1},
    {"end_offset": 2**63},
    {"end_offset": 10**30},
    {"batch_count": -1},
    {"record_count": 10**30},
    {"batch_bytes": 2**60},
    {"largest_batch_bytes": 2**31},
    {"max_timestamp": 2**63},
    {"leader_epochs": [[-2, 0]]},
    {"index": [[0, -5, 0]]},
]


@pytest.mark.parametrize("numbers", HOSTILE_NUMBERS, ids=str)
def test_a_number_that_no_writer_gives_is_damage(numbers: dict[str, Any]) -> None:
    data, _ = write_segment([batch(0, 2)])
    reader = SegmentReader(BytesSource(data))
    footer = msgspec.structs.replace(reader.footer, **numbers)

    with pytest.raises(DamagedSegment, match="the footer cannot be read: Expected"):
        SegmentReader(BytesSource(data[: reader.footer_position] + encode_footer(footer)))


def test_a_batch_that_is_larger_than_a_compressed_frame_is_stored_as_it_is() -> None:
    large = batch(0, 1, value_bytes=MAX_COMPRESSED_FRAME_BYTES)

    data, _ = write_segment([large, batch(1, 2)], codec=FrameCodec.ZSTD)

    reader = SegmentReader(BytesSource(data))
    first, second = reader.frames(check_crcs=True)
    assert (first.head.codec, second.head.codec) == (FrameCodec.NONE, FrameCodec.ZSTD)
    assert bytes(first.batches[0].data) == large


def test_a_batch_that_no_frame_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FRAME_BYTES > 100 * MIB  # What brokers take by default, and more.
    monkeypatch.setattr("quorate.backup.segments.writer.MAX_FRAME_BYTES", 100)
    writer, large = SegmentWriter("s", BytesUpload(), header()), batch(0, 1, value_bytes=200)

    with pytest.raises(BatchTooLarge, match="a backup takes none over 100"):
        writer.append(large, summary_of(large))


def test_a_reader_keeps_to_the_largest_frame_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = write_segment([batch(0, 1, value_bytes=200)])
    monkeypatch.setattr(segment_layout, "MAX_FRAME_BYTES", 100)

    with pytest.raises(DamagedSegment, match="no frame of its kind has over 100"):
        read_all(data)
