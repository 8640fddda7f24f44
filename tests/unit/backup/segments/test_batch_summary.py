"""What a backup knows of a batch, in every message format."""

import pytest

from quorate.backup.segments.batch_summary import iterate_summaries
from quorate.backup.segments.reader import SegmentReader
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression, patch_log_append_time
from quorate.records.builder import build_batch
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP, Record
from tests.unit.backup.batches import BytesSource, batch, summary_of, write_segment
from tests.unit.records.test_legacy import message, wrapper


def test_a_batch_is_summed_up_from_its_header() -> None:
    data = batch(40, 3, timestamps=[500, 100, 900], leader_epoch=6, compression=Compression.ZSTD)

    summary = summary_of(data)

    assert (summary.base_offset, summary.last_offset, summary.next_offset) == (40, 42, 43)
    assert (summary.size_bytes, summary.magic, summary.leader_epoch) == (len(data), 2, 6)
    assert (summary.record_count, summary.is_compressed) == (3, True)
    assert (summary.min_timestamp, summary.max_timestamp) == (500, 900)


def test_log_append_time_is_the_time_of_every_record() -> None:
    data = bytearray(batch(0, 2, timestamps=[5, 9]))
    patch_log_append_time(data, 0, 700)

    summary = summary_of(bytes(data))

    assert (summary.min_timestamp, summary.max_timestamp) == (700, 700)


def test_a_delete_horizon_is_not_taken_for_the_time_of_a_record() -> None:
    data = build_batch(
        [Record(Offset(0), 300, b"k", None, ()), Record(Offset(1), 200, b"l", None, ())], delete_horizon_ms=99_999
    )

    summary = summary_of(data)

    assert (summary.min_timestamp, summary.max_timestamp) == (200, 300)


def test_what_compaction_leaves_of_an_empty_batch_has_offsets_and_no_time() -> None:
    data = build_batch([], base_offset=Offset(10), last_offset_delta=4, max_timestamp=77)

    summary = summary_of(data)

    assert (summary.base_offset, summary.last_offset, summary.record_count) == (10, 14, 0)
    assert (summary.min_timestamp, summary.max_timestamp) == (NO_TIMESTAMP, NO_TIMESTAMP)


def test_messages_of_formats_0_and_1_are_batches_of_their_own_and_wrappers_are_opened() -> None:
    inner = message(0, b"a", timestamp=70) + message(1, b"b", timestamp=30)
    old = message(5, b"x", magic=0)
    plain = message(6, b"y", timestamp=40)
    wrapped = wrapper(9, inner, Compression.GZIP)
    new = batch(10, 2)

    found = [summary for _, summary in iterate_summaries(old + plain + wrapped + new, strict=True)]

    assert [(each.base_offset, each.last_offset, each.record_count) for each in found] == [
        (5, 5, 1),
        (6, 6, 1),
        (8, 9, 2),
        (10, 11, 2),
    ]
    assert [each.magic for each in found] == [0, 1, 1, 2]
    assert [each.is_compressed for each in found] == [False, False, True, False]
    assert [(each.min_timestamp, each.max_timestamp) for each in found[:3]] == [(-1, -1), (40, 40), (30, 70)]


def test_old_formats_are_stored_as_they_are() -> None:
    log = [message(5, b"x", magic=0), message(6, b"y"), batch(7)]

    data, finished = write_segment(log, start_offset=5)

    assert [bytes(each.data) for each in SegmentReader(BytesSource(data)).batches(check_crcs=True)] == log
    assert finished.footer.leader_epochs[0].start_offset == 7


def test_partial_batch_at_the_end_of_a_fetch_is_passed_over_unless_strict() -> None:
    whole = batch(0, 2)
    for cut in range(1, len(whole)):
        fetched = whole + batch(2)[:cut]
        if cut < len(batch(2)):
            assert [position for position, _ in iterate_summaries(fetched)] == [0]
            with pytest.raises(CorruptBatch, match="not a whole batch"):
                list(iterate_summaries(fetched, strict=True))


@pytest.mark.parametrize("length", [-1, 0, 4])
def test_a_length_that_no_batch_has_is_corrupt(length: int) -> None:
    data = bytearray(batch(0))
    data[8:12] = length.to_bytes(4, "big", signed=True)

    with pytest.raises(CorruptBatch, match="batch length"):
        list(iterate_summaries(bytes(data)))


def test_crcs_are_checked_on_request() -> None:
    data = bytearray(batch(0))
    data[-1] ^= 1

    assert len(list(iterate_summaries(bytes(data)))) == 1
    with pytest.raises(CorruptBatch, match="CRC"):
        list(iterate_summaries(bytes(data), check_crcs=True))
