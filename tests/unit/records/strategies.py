"""Hypothesis strategies for records and batches."""

from hypothesis import strategies as st

from quorate.kernel.ids import Offset
from quorate.records.record import Record

INT64_MAX = 2**63 - 1

optional_bytes = st.none() | st.binary(max_size=300)
header_keys = st.text(max_size=10) | st.binary(max_size=10).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
record_headers = st.lists(st.tuples(header_keys, optional_bytes), max_size=4).map(tuple)

# All that a producer may send, and -1 for none: deltas of up to 64 bits.
timestamps = st.integers(-1, INT64_MAX - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def sparse_records(draw: st.DrawFn, max_size: int = 8) -> list[Record]:
    """Records with ascending offsets and gaps, as compaction leaves them."""
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 100_000), min_size=1, max_size=max_size))
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap in gaps:
        records.append(
            Record(Offset(offset), draw(timestamps), draw(optional_bytes), draw(optional_bytes), draw(record_headers))
        )
        offset += gap
    return records


@st.composite
def dense_records(draw: st.DrawFn, max_size: int = 8) -> list[Record]:
    """Records as a producer sends them: offsets from 0 without gaps, header keys in UTF-8, times that are set."""
    count = draw(st.integers(1, max_size))
    headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple)
    return [
        Record(Offset(index), draw(st.integers(0, 2**62)), draw(optional_bytes), draw(optional_bytes), draw(headers))
        for index in range(count)
    ]
