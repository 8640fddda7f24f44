"""What goes into a segment comes out of it, whatever the batches look like and however they are stored."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.segments.layout import FrameCodec
from quorate.backup.segments.reader import SegmentReader, SequentialBytes
from quorate.backup.segments.verification import verify_deeply
from quorate.backup.segments.writer import SegmentWriter
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.unit.backup.batches import BytesSource, BytesUpload, batch, header, summary_of, write_segment

CODECS = list(FrameCodec)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches as a log may hold them: any sizes, codecs and epochs, with compaction gaps, times in any order."""
    offset = draw(st.integers(0, 5))
    leader_epoch = 0
    batches = []
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 3))
        leader_epoch += draw(st.integers(0, 1))
        count = draw(st.integers(1, 5))
        batches.append(
            batch(
                offset,
                count,
                timestamps=draw(st.lists(st.integers(0, 10_000), min_size=count, max_size=count)),
                leader_epoch=leader_epoch,
                compression=draw(st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4])),
                value_bytes=draw(st.integers(0, 600)),
            )
        )
        offset += count
    return batches


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(CODECS), st.integers(100, 4_000))
def test_every_batch_comes_back_byte_for_byte_and_in_order(
    log: list[bytes], codec: FrameCodec, frame_bytes: int
) -> None:
    data, finished = write_segment(log, codec=codec, frame_bytes=frame_bytes)

    reader = SegmentReader(BytesSource(data))

    assert [bytes(stored.data) for stored in reader.batches(check_crcs=True)] == log
    assert reader.header == header()
    assert verify_deeply(BytesSource(data)) == finished.footer


@settings(max_examples=60, deadline=None)
@given(logs(), st.sampled_from(CODECS), st.integers(0, 70))
def test_reading_from_an_offset_gives_every_batch_that_reaches_it(
    log: list[bytes], codec: FrameCodec, wanted: int
) -> None:
    data, _ = write_segment(log, codec=codec, frame_bytes=300)

    found = [bytes(stored.data) for stored in SegmentReader(BytesSource(data)).batches(from_offset=Offset(wanted))]

    assert found == [each for each in log if summary_of(each).last_offset >= wanted]


@settings(max_examples=60, deadline=None)
@given(logs(), st.integers(0, 10_000))
def test_reading_from_a_time_skips_only_batches_that_are_older_although_times_are_out_of_order(
    log: list[bytes], wanted: int
) -> None:
    data, _ = write_segment(log, frame_bytes=300)

    found = [bytes(stored.data) for stored in SegmentReader(BytesSource(data)).batches(from_timestamp=wanted)]

    first = next((index for index, each in enumerate(log) if summary_of(each).max_timestamp >= wanted), len(log))
    assert found == log[first:]


def test_the_index_spares_reading_what_stands_before_an_offset() -> None:
    log = [batch(index * 10, 10, value_bytes=30_000) for index in range(40)]
    data, finished = write_segment(log, frame_bytes=1024 * 1024)
    source = BytesSource(data)

    first = next(SegmentReader(source).batches(from_offset=Offset(395)))

    assert len(finished.footer.index) > 5
    assert first.summary.base_offset == 390
    assert source.read_bytes < len(data) / 3


def test_end_timestamp_is_the_largest_and_not_the_last_records() -> None:
    log = [batch(0, 2, timestamps=[50, 900]), batch(2, 2, timestamps=[300, 20])]

    _, finished = write_segment(log)

    assert (finished.footer.min_timestamp, finished.footer.max_timestamp) == (50, 900)


def test_footer_counts_what_the_segment_holds() -> None:
    log = [batch(3, 2, leader_epoch=1), batch(9, 4, leader_epoch=1), batch(20, 1, leader_epoch=4)]

    data, finished = write_segment(log, start_offset=3, end_offset=30)

    footer = finished.footer
    assert (footer.start_offset, footer.end_offset, footer.first_offset, footer.last_offset) == (3, 30, 3, 20)
    assert (footer.batch_count, footer.record_count, footer.batch_bytes) == (3, 7, sum(map(len, log)))
    assert [(epoch.leader_epoch, epoch.start_offset) for epoch in footer.leader_epochs] == [(1, 3), (4, 20)]
    assert finished.size_bytes == len(data)
    assert finished.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("codec", [FrameCodec.LZ4, FrameCodec.ZSTD])
def test_batches_that_the_producer_left_uncompressed_are_compressed_together(codec: FrameCodec) -> None:
    log = [batch(index, value_bytes=500) for index in range(50)]
    compressed_by_producer = [batch(index, value_bytes=500, compression=Compression.LZ4) for index in range(50)]

    small, finished = write_segment(log, codec=codec, frame_bytes=64 * 1024)
    as_they_are, _ = write_segment(compressed_by_producer, codec=codec, frame_bytes=64 * 1024)

    assert len(small) < finished.footer.batch_bytes / 5
    assert all(each in as_they_are for each in compressed_by_producer)


def test_data_that_does_not_shrink_is_stored_as_it_is() -> None:
    noise = hashlib.shake_256(b"seed").digest(2000)
    data = build_batch([Record(Offset(0), 5, None, noise, ())])

    segment, _ = write_segment([data], codec=FrameCodec.ZSTD)

    assert data in segment


def test_a_batch_larger_than_a_frame_has_a_frame_of_its_own() -> None:
    log = [batch(0, value_bytes=10), batch(1, value_bytes=5_000), batch(2, value_bytes=10)]

    data, _ = write_segment(log, frame_bytes=1_000)

    reader = SegmentReader(BytesSource(data))
    assert [frame.head.batch_count for frame in reader.frames()] == [1, 1, 1]
    assert [bytes(stored.data) for stored in reader.batches()] == log


def test_writer_keeps_no_more_than_a_frame() -> None:
    upload = BytesUpload()
    writer = SegmentWriter("s", upload, header(), frame_bytes=10_000)
    taken = 0
    for index in range(200):
        data = batch(index, value_bytes=900)
        taken += len(data)
        writer.append(data, summary_of(data))
        assert taken - len(upload.content) <= 10_000


def test_the_caller_may_use_its_buffer_again_when_the_batches_are_kept() -> None:
    log = [batch(index, value_bytes=300) for index in range(20)]
    buffer = bytearray(4_000)
    upload = BytesUpload()
    writer = SegmentWriter("s", upload, header(), frame_bytes=1_000)
    for data in log:
        buffer[: len(data)] = data
        writer.append(memoryview(buffer)[: len(data)], summary_of(data))
        writer.keep()
        buffer[:] = bytes(len(buffer))
    writer.finish(Offset(20))

    assert [bytes(each.data) for each in SegmentReader(BytesSource(bytes(upload.content))).batches()] == log


def test_offsets_that_do_not_rise_are_refused() -> None:
    writer = SegmentWriter("s", BytesUpload(), header())
    writer.append(batch(5, 3), summary_of(batch(5, 3)))

    with pytest.raises(ValueError, match="offsets 7 to 7 where offset 8 was expected"):
        writer.append(batch(7, 1), summary_of(batch(7, 1)))


def test_a_summary_that_is_not_the_batchs_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes, not"):
        SegmentWriter("s", BytesUpload(), header()).append(batch(0) + b"x", summary_of(batch(0)))


def test_the_first_batch_may_begin_before_the_start_since_a_log_may_be_cut_inside_it() -> None:
    data, finished = write_segment([batch(0, 10), batch(10, 5)], start_offset=4)

    assert (finished.footer.start_offset, finished.footer.first_offset) == (4, 0)
    assert len(list(SegmentReader(BytesSource(data)).batches())) == 2


def test_sequential_bytes_up_to_an_end_are_not_copied() -> None:
    data = bytes(range(256)) * 20
    source = BytesSource(data)
    sequence = SequentialBytes(source, 3, window_bytes=100, ends=[3, 63, 93, 193, 400])

    taken = [sequence.take(length) for length in (60, 30, 50, 50, 207)]

    assert b"".join(taken) == data[3:400]
    assert source.read_bytes == 397, "nothing was read behind an end that was in reach, nor twice"


def test_sequential_bytes_cross_windows() -> None:
    data = bytes(range(256)) * 20
    sequence = SequentialBytes(BytesSource(data), 3, window_bytes=100)

    taken = [bytes(sequence.take(length)) for length in (1, 99, 250, 0, 7)]

    assert b"".join(taken) == data[3 : 3 + 357]
