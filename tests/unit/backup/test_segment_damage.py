"""A torn or bit-flipped segment gives one clear error, wherever the damage is."""

import msgspec
import pytest

from quorate.backup.errors import DamagedSegment
from quorate.backup.manifests.manifest import SegmentEntry, segment_entry
from quorate.backup.segments.layout import FrameCodec, encode_footer, encode_frame_head
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.segments.verification import verified_batches, verify_deeply, verify_hash
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression
from tests.unit.backup.batches import PARTITION, TOPIC, TOPIC_ID, BytesSource, batch, write_segment

LOG = [
    batch(0, 2, leader_epoch=1),
    batch(2, 1, compression=Compression.LZ4, value_bytes=40),
    batch(5, 2, timestamps=[9_000, 10]),
    batch(7, 1, leader_epoch=2),
]


def read_all(data: bytes) -> None:
    for _ in SegmentReader(BytesSource(data)).batches():
        pass


def entry_for(data: bytes, codec: FrameCodec = FrameCodec.NONE) -> SegmentEntry:
    written, finished = write_segment(LOG, codec=codec, frame_bytes=250)
    assert written == data
    name = f"topics/{TOPIC}~{TOPIC_ID}/{PARTITION}/00000000000000000000-a.qseg"
    return segment_entry(name, finished)


@pytest.mark.parametrize("codec", list(FrameCodec))
def test_every_flipped_bit_is_found_by_reading_and_by_verifying(codec: FrameCodec) -> None:
    data, _ = write_segment(LOG, codec=codec, frame_bytes=250)
    entry = entry_for(data, codec)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        for check in (
            read_all,
            lambda data: verify_hash(BytesSource(data), entry),
            lambda data: list(verified_batches(BytesSource(data), entry)),
        ):
            with pytest.raises(DamagedSegment, match=r"^segment object\.qseg is damaged: [^\n]+: [^\n]+$"):
                check(bytes(damaged))


def test_every_torn_end_is_found() -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    entry = entry_for(data)
    for length in range(len(data)):
        with pytest.raises(DamagedSegment):
            read_all(data[:length])
        with pytest.raises(DamagedSegment, match="size"):
            verify_hash(BytesSource(data[:length]), entry)
        with pytest.raises(DamagedSegment, match="size"):
            list(verified_batches(BytesSource(data[:length]), entry))


def test_a_sound_segment_that_is_not_the_one_of_the_manifest_is_found_behind_its_last_batch() -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    entry = entry_for(data)

    assert [batch.data for batch in verified_batches(BytesSource(data), entry)] == LOG
    other = verified_batches(BytesSource(data), msgspec.structs.replace(entry, sha256="0" * 64))
    assert [next(other).data for _ in LOG] == LOG
    with pytest.raises(DamagedSegment, match="its SHA-256 is"):
        next(other)


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 40, b"GESQ"])
def test_bytes_behind_the_end_are_found(tail: bytes) -> None:
    data, _ = write_segment(LOG)

    with pytest.raises(DamagedSegment):
        read_all(data + tail)


def test_the_place_of_the_damage_is_named() -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    reader = SegmentReader(BytesSource(data))
    second = list(reader.frames())[1].position
    damaged = bytearray(data)
    damaged[second + 60] ^= 1

    with pytest.raises(DamagedSegment, match=f"frame at byte {second}: the frame does not match its CRC"):
        read_all(bytes(damaged))


def test_a_missing_frame_is_found_although_all_that_is_there_is_sound() -> None:
    """Verification is not the arithmetic of the footer: it counts what is there."""
    data, _ = write_segment(LOG, frame_bytes=250)
    reader = SegmentReader(BytesSource(data))
    first, second = list(reader.frames())[:2]
    without = data[: first.position] + data[second.position :]

    read_all(without)
    with pytest.raises(DamagedSegment, match="footer: it says"):
        verify_deeply(BytesSource(without))


def test_a_batch_with_a_bad_crc_is_found_under_a_sound_frame() -> None:
    bad = bytearray(batch(0, 2))
    bad[-1] ^= 1
    data, _ = write_segment([bytes(bad)])

    read_all(data)
    with pytest.raises(DamagedSegment, match="batch at offset 0 has CRC"):
        verify_deeply(BytesSource(data))


def test_a_frame_whose_head_lies_about_its_batches_is_found() -> None:
    payload = batch(0, 2)
    head = encode_frame_head(
        FrameCodec.NONE, payload, payload_size_bytes=len(payload), batch_count=2, base_offset=0, last_offset=1
    )
    whole, finished = write_segment([payload])
    start = SegmentReader(BytesSource(whole)).frames_position
    data = whole[:start] + head + payload + encode_footer(finished.footer)

    with pytest.raises(DamagedSegment, match="it holds 1 batches, not 2"):
        read_all(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("record_count", 99),
        ("max_timestamp", 1),
        ("min_timestamp", 1),
        ("first_offset", 1),
        ("last_offset", 99),
        ("end_offset", 99),
        ("batch_bytes", 1),
        ("batch_count", 1),
    ],
)
def test_a_manifest_that_says_something_else_than_the_batches_is_found(field: str, value: int) -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    entry = msgspec.structs.replace(entry_for(data), **{field: value})

    with pytest.raises(DamagedSegment, match=f"manifest: it says {field} {value}"):
        verify_deeply(BytesSource(data), entry)


def test_a_sound_segment_in_another_ones_place_is_found() -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    entry = msgspec.structs.replace(entry_for(data), name=f"topics/{TOPIC}~{TOPIC_ID}/1/00000000000000000000-a.qseg")

    with pytest.raises(DamagedSegment, match="header: it belongs into"):
        verify_deeply(BytesSource(data), entry)


def test_a_superseded_end_in_the_manifest_is_no_damage() -> None:
    data, _ = write_segment(LOG, frame_bytes=250)
    entry = msgspec.structs.replace(entry_for(data), superseded_from_offset=Offset(5))

    verify_deeply(BytesSource(data), entry)
    verify_hash(BytesSource(data), entry)
