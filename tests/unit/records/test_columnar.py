"""Records as columns: both scans give what the reader of single records gives, and refuse what it refuses."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.spark.data_source.row_reader import warm_memory
from quorate.kernel import native as kernel
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import Compression, TimestampType, read_header
from quorate.records.builder import build_batch
from quorate.records.columnar import (
    BinaryColumn,
    NativeScan,
    Payload,
    RecordColumns,
    RowBounds,
    Scan,
    payload_of,
    scan_payloads,
)
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP, Record, encode_varint, iterate_records
from tests.unit.records.raw_batches import batch_of_payload, raw_record
from tests.unit.records.strategies import sparse_records
from tests.unit.records.test_record import MALFORMED_RECORDS

LIMIT_BYTES = 1024 * 1024
ALL = RowBounds()


@pytest.fixture(scope="module")
def native() -> Scan:
    if kernel.native is None:
        pytest.skip(f"no native module: {kernel.choice}")
    return NativeScan(kernel.native, warm_memory)


@pytest.fixture(params=["python", "native"])
def scan(request: pytest.FixtureRequest) -> Scan:
    if request.param == "python":
        return scan_payloads
    found: Scan = request.getfixturevalue("native")
    return found


def payloads(*batches: bytes) -> list[Payload]:
    return [payload_of(batch, read_header(batch), limit_bytes=LIMIT_BYTES) for batch in batches]


def rows_of(columns: RecordColumns) -> list[Record]:
    """Back from columns to records; times are whole milliseconds again."""
    count = columns.row_count
    offsets, times = _numbers(columns.offsets, "q"), _numbers(columns.timestamps, "q")
    has_time = _bits(columns.timestamp_validity, count)
    keys, values = _values(columns.keys), _values(columns.values)
    header_keys, header_values = _values(columns.header_keys), _values(columns.header_values)
    ends = _numbers(columns.header_ends, "i")
    assert len(offsets) == len(times) == len(keys) == len(values) == count == len(ends) - 1
    assert len(header_keys) == len(header_values) == columns.header_count
    return [
        Record(
            Offset(offsets[row]),
            times[row] // 1000 if has_time[row] else NO_TIMESTAMP,
            keys[row],
            values[row],
            tuple(
                ((header_keys[index] or b"").decode("utf-8", "surrogateescape"), header_values[index])
                for index in range(ends[row], ends[row + 1])
            ),
        )
        for row in range(count)
    ]


def outcome(scan: Scan, batches: Sequence[Payload], bounds: RowBounds = ALL) -> object:
    """The columns as plain bytes, or the words of the error."""
    try:
        return _plain(scan(batches, bounds))
    except CorruptBatch as error:
        return str(error)


@given(
    batches=st.lists(st.tuples(sparse_records(), st.sampled_from(Compression)), min_size=1, max_size=3),
    append_time=st.booleans(),
)
def test_both_scans_give_the_records_of_every_codec(
    native: Scan, batches: list[tuple[list[Record], Compression]], append_time: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    encoded = [
        build_batch(records, base_offset=records[0].offset, compression=codec, timestamp_type=kind)
        for records, codec in batches
    ]
    found = scan_payloads(payloads(*encoded), ALL)
    expected = [record for batch in encoded for record in iterate_records(batch)]
    assert rows_of(found) == [_as_column(record) for record in expected]
    assert _numbers(found.timestamp_types, "i") == [kind] * len(expected)
    assert outcome(native, payloads(*encoded)) == _plain(found)


@pytest.mark.parametrize("memory", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_records_are_found_in_memory_of_any_kind(native: Scan, memory: Callable[[bytes], Buffer]) -> None:
    batch = build_batch([Record(Offset(7), 1, b"k", b"v", (("h", b""),)), Record(Offset(9), 2)], base_offset=Offset(7))
    (payload,) = payloads(batch)
    held = memory(bytes(payload.data))
    expected = scan_payloads([payload, payload], ALL)
    assert outcome(native, [Payload(payload.header, held)] * 2) == _plain(expected)


@given(records=sparse_records(), bounds=st.tuples(*[st.integers(-(2**40), 2**41)] * 4))
def test_rows_outside_of_the_bounds_are_left_out(
    native: Scan, records: list[Record], bounds: tuple[int, int, int, int]
) -> None:
    limits = RowBounds(*bounds)
    batch = payloads(build_batch(records, base_offset=records[0].offset))
    wanted = [record for record in records if limits.include(record)]
    assert rows_of(scan_payloads(batch, limits)) == [_as_column(record) for record in wanted]
    assert outcome(native, batch, limits) == outcome(scan_payloads, batch, limits)


@settings(max_examples=200)
@given(records=sparse_records(), data=st.data())
def test_damaged_bytes_are_refused_by_both_scans_with_the_same_words(
    native: Scan, records: list[Record], data: st.DataObject
) -> None:
    sound = payloads(build_batch(records, base_offset=records[0].offset))[0]
    damaged = bytearray(sound.data)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[len(damaged) - data.draw(st.integers(0, 2)) :]
    batch = [Payload(sound.header, bytes(damaged))]
    assert outcome(native, batch) == outcome(scan_payloads, batch)


@settings(max_examples=150)
@given(payload=st.binary(max_size=80), count=st.integers(0, 6))
def test_random_bytes_have_the_same_outcome_in_both_scans(native: Scan, payload: bytes, count: int) -> None:
    header = read_header(batch_of_payload(payload, count, last_offset_delta=2**31 - 1))
    batch = [Payload(header, payload)]
    assert outcome(native, batch) == outcome(scan_payloads, batch)


@pytest.mark.parametrize("payload", MALFORMED_RECORDS.values(), ids=MALFORMED_RECORDS.keys())
def test_nonsense_inside_a_record_is_corrupt(scan: Scan, payload: bytes) -> None:
    batch = batch_of_payload(payload, 1, base_timestamp=2**62)
    with pytest.raises(CorruptBatch):
        scan(payloads(build_batch([Record(Offset(0), 1)]), batch), ALL)


@pytest.mark.parametrize("record_count", [-1, 0, 2, 2**31 - 1])
def test_wrong_record_count_is_corrupt(scan: Scan, record_count: int) -> None:
    with pytest.raises(CorruptBatch):
        scan(payloads(batch_of_payload(raw_record(), record_count, last_offset_delta=2**31 - 1)), ALL)


def test_offset_beyond_64_bits_is_corrupt(scan: Scan) -> None:
    batch = bytearray(batch_of_payload(raw_record(offset_delta=encode_varint(5)), 1, last_offset_delta=9))
    struct.pack_into(">q", batch, 0, 2**63 - 3)
    with pytest.raises(CorruptBatch, match="64 bits"):
        scan(payloads(bytes(batch)), ALL)


def test_time_that_microseconds_cannot_hold_is_null(scan: Scan) -> None:
    times = [NO_TIMESTAMP, 2**63 - 2, 2**63 // 1000, 2**63 // 1000 + 1, 0]
    records = [Record(Offset(index), time) for index, time in enumerate(times)]
    found = scan(payloads(build_batch(records)), ALL)
    assert _bits(found.timestamp_validity, 5) == [False, False, True, False, True]


def test_nothing_at_all_gives_no_rows(scan: Scan) -> None:
    empty = build_batch([], last_offset_delta=3)
    found = scan(payloads(empty), ALL)
    assert found.row_count == found.header_count == 0
    assert found == scan([], ALL)


def test_uncompressed_records_are_not_copied() -> None:
    batch = build_batch([Record(Offset(0), 1, b"k", b"v" * 100)])
    data = payload_of(batch, read_header(batch), limit_bytes=LIMIT_BYTES).data
    assert isinstance(data, memoryview)
    assert data.obj is batch


class Measured:
    """A module whose scan has measured so much of everything."""

    def __init__(self, count: int) -> None:
        self._count = count

    def scan_records(self, _: object, __: object, allocate: Callable[..., RecordColumns], /) -> RecordColumns:
        return allocate(*[self._count] * 10)


def test_column_that_is_too_large_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="Arrow"):
        NativeScan(Measured(2**31))([], ALL)  # type: ignore[arg-type]


@pytest.fixture
def module() -> kernel.NativeModule:
    if kernel.native is None:
        pytest.skip(f"no native module: {kernel.choice}")
    return kernel.native


def one_record() -> list[Payload]:
    record = Record(Offset(0), 1, b"key", None, (("h", b"header"), ("i", None)))
    return payloads(build_batch([record, Record(Offset(1), NO_TIMESTAMP, None, b"value")]))


def memory_of(module: kernel.NativeModule) -> RecordColumns:
    """With room for ``one_record`` and nothing more."""
    columns = NativeScan(module)(one_record(), ALL)
    return _zeros(columns)


def test_memory_of_the_measured_size_is_filled(module: kernel.NativeModule) -> None:
    memory = memory_of(module)
    assert _plain(module.scan_records(one_record(), ALL, lambda *_: memory)) == outcome(scan_payloads, one_record())


@pytest.mark.parametrize(
    "path", [(1,), (2,), (3,), (4,), (8,), *[(at, part) for at in (6, 7, 11) for part in range(3)]]
)
@pytest.mark.parametrize("change", ["shorter", "read only", "missing", "no memory"])
def test_memory_that_does_not_fit_is_refused(module: kernel.NativeModule, path: tuple[int, ...], change: str) -> None:
    def spoil(value: tuple[object, ...], path: tuple[int, ...]) -> tuple[object, ...]:
        at, *rest = path
        held = value[at]
        if rest:
            assert isinstance(held, tuple)
            return (*value[:at], spoil(held, tuple(rest)), *value[at + 1 :])
        assert isinstance(held, bytearray)
        spoiled = {"shorter": held[:-1], "read only": bytes(held), "missing": None, "no memory": 17}[change]
        return (*value[:at], spoiled, *value[at + 1 :])

    memory = memory_of(module)
    with pytest.raises((ValueError, TypeError, BufferError)):
        module.scan_records(one_record(), ALL, lambda *_: spoil(memory, path))


@pytest.mark.parametrize("memory", [None, (), (1, bytearray(99)), [], 17])
def test_columns_that_are_none_are_refused(module: kernel.NativeModule, memory: object) -> None:
    with pytest.raises((TypeError, IndexError)):
        module.scan_records(one_record(), ALL, lambda *_: memory)  # type: ignore[type-var]


def test_memory_out_of_line_is_refused(module: kernel.NativeModule) -> None:
    memory = memory_of(module)
    crooked = memory._replace(offsets=memoryview(bytearray(100))[1:])
    with pytest.raises(ValueError, match="aligned"):
        module.scan_records(one_record(), ALL, lambda *_: crooked)


@pytest.mark.parametrize(
    "payload", [None, (), (1, b""), ((), b""), (("0",) * 13, b""), ((2**63,) * 13, b""), ((1,) * 13, 5)]
)
def test_payload_that_is_none_is_refused(module: kernel.NativeModule, payload: object) -> None:
    with pytest.raises((TypeError, IndexError, OverflowError)):
        module.scan_records([*one_record(), payload], ALL, lambda *_: memory_of(module))


@pytest.mark.parametrize("bounds", [None, (), (1, 2, 3), (1, 2, 3, "4"), (1, 2, 3, 2**63), [1, 2, 3, 4]])
def test_bounds_that_are_none_are_refused(module: kernel.NativeModule, bounds: tuple[int, int, int, int]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        module.scan_records(one_record(), bounds, lambda *_: memory_of(module))


def test_error_of_an_allocation_comes_through(module: kernel.NativeModule) -> None:
    def refuse(*_: int) -> RecordColumns:
        raise MemoryError("as told")

    with pytest.raises(MemoryError, match="as told"):
        module.scan_records(one_record(), ALL, refuse)


def test_records_that_change_while_they_are_read_give_nothing(module: kernel.NativeModule) -> None:
    (sound,) = payloads(build_batch([Record(Offset(0), 1, b"key", b"value")]))
    data = bytearray(sound.data)

    def spoil(*_: int) -> RecordColumns:
        memory = memory_of(module)
        data[data.index(b"key") - 1] = 1  # The key is null now, and what follows it is nonsense.
        return memory

    with pytest.raises(RuntimeError, match="changed"):
        module.scan_records([Payload(sound.header, data)], ALL, spoil)


def _as_column(record: Record) -> Record:
    """Times that a column has no room for come back as none."""
    is_held = -(2**63) <= record.timestamp * 1000 < 2**63
    timestamp = record.timestamp if is_held else NO_TIMESTAMP
    return Record(record.offset, timestamp, record.key, record.value, record.headers)


def _numbers(data: Buffer, kind: str) -> list[int]:
    return memoryview(bytes(data)).cast(kind).tolist()  # type: ignore[call-overload, no-any-return]


def _bits(validity: Buffer | None, count: int) -> list[bool]:
    if validity is None:
        return [True] * count
    return [bool(validity[index >> 3] >> (index & 7) & 1) for index in range(count)]


def _values(column: BinaryColumn) -> list[bytes | None]:
    ends = _numbers(column.ends, "i")
    valid = _bits(column.validity, len(ends) - 1)
    data = bytes(column.data)
    return [data[ends[row] : ends[row + 1]] if valid[row] else None for row in range(len(ends) - 1)]


def _zeros(value: RecordColumns) -> RecordColumns:
    """Memory of the same sizes."""

    def zeros(each: Any) -> Any:
        if isinstance(each, BinaryColumn):
            return BinaryColumn(*map(zeros, each))
        return bytearray(len(each)) if isinstance(each, bytearray) else each

    return RecordColumns(*map(zeros, value))


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value
