"""Frames that go back as they are: native code sends what its twin sends, byte for byte."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.objects.storage import StoredObject
from quorate.backup.restore import outgoing
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.outgoing import PartitionAssignment, outgoing_from, plain_batches
from quorate.backup.segments.reader import SegmentReader
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.kernel.native import NativeModule, native
from quorate.records.batch import Compression, TimestampType, check_crc, detach, patch_producer, read_header
from tests.unit.backup.batches import PARTITION, TOPIC
from tests.unit.backup.restored_logs import StoredPartition, data_batch, marker, record, rules
from tests.unit.client.region_bytes import mutated, random_region

Sent = list[tuple[bytes, int, int]]
SEEDS = st.integers(0, 2**64 - 1)


@pytest.fixture
def module() -> NativeModule:
    if native is None:
        pytest.skip("no native module")
    return native


def sent(stored: StoredPartition, wanted: RecordRules, position: int) -> Sent:
    assignment = PartitionAssignment(topic=TOPIC, partition=PARTITION, sources=[stored.source(wanted)])
    found = outgoing_from(stored.storage, assignment, position)
    return [(b"".join(each.data), each.offset_count, each.record_count) for each in found]


def random_log(chance: random.Random, rare: float) -> list[list[bytes]]:
    """Segments; ``rare`` is the share of batches that cannot go back as they are."""
    segments, offset = [], chance.choice((0, 40))
    for _ in range(chance.randrange(1, 4)):
        batches: list[bytes] = []
        for _ in range(chance.randrange(1, 12)):
            batch, offset = random_batch(chance, offset, is_rare=chance.random() < rare)
            batches.append(batch)
        segments.append(batches)
    return segments


def random_batch(chance: random.Random, offset: int, *, is_rare: bool) -> tuple[bytes, int]:
    count = chance.choice((1, 1, 3))
    records = [record(offset + index, chance.randrange(1_000, 2_000)) for index in range(count)]
    kind = chance.choice((0, 0, 1, 2, 3)) if is_rare else -1
    if kind == 0:
        return data_batch(records, last_offset=offset + count + 1), offset + count + 2
    if kind == 1:
        return data_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME), offset + count
    if kind == 2:
        return data_batch(records, producer_id=5, is_transactional=True), offset + count
    if kind == 3:
        return marker(offset, 5, is_commit=chance.random() < 0.5), offset + 1
    return data_batch(records, compression=chance.choice((Compression.NONE, Compression.LZ4))), offset + count


@pytest.mark.parametrize("seed", range(150))
def test_native_code_sends_what_its_twin_sends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    stored = StoredPartition(*random_log(chance, chance.choice((0.0, 0.1, 0.4))))
    wanted = rules(
        start_ms=chance.choice((None, None, 1_200)),
        end_ms=chance.choice((None, None, 1_900, 2**70)),
        max_batch_bytes=chance.choice((None, 100)),
        partition_count=chance.choice((None, None, None, 2)),
    )
    position = chance.choice((0, 0, 1, 7))
    found = sent(stored, wanted, position)

    monkeypatch.setattr(outgoing, "native", None)

    assert found == sent(stored, wanted, position)


def frames_that_go_whole(*batches: bytes, end_ms: int | None = None) -> list[bool]:
    stored = StoredPartition(list(batches))
    (entry,) = stored.entries
    frames = SegmentReader(StoredObject(stored.storage, entry.name)).whole_frames()
    return [plain_batches(frame, entry, rules(end_ms=end_ms), PARTITION) is not None for frame in frames]


PLAIN = data_batch([record(0, 10), record(1, 20)])


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([PLAIN, data_batch([record(2)])], True),
        ([PLAIN, data_batch([record(9)])], True),
        ([PLAIN, data_batch([record(2)], last_offset=3)], False),
        ([PLAIN, data_batch([record(2)], timestamp_type=TimestampType.LOG_APPEND_TIME)], False),
        ([PLAIN, data_batch([record(2)], producer_id=5, is_transactional=True)], False),
        ([PLAIN, marker(2, 5, is_commit=True)], False),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_frame_goes_whole_if_all_of_its_batches_are_plain(batches: list[bytes], expected: bool) -> None:
    assert frames_that_go_whole(*batches) == [expected]


@pytest.mark.parametrize(("end_ms", "expected"), [(None, True), (20, True), (19, False)])
@pytest.mark.usefixtures("module")
def test_a_frame_with_a_record_that_is_too_new_does_not_go_whole(end_ms: int | None, expected: bool) -> None:
    assert frames_that_go_whole(PLAIN, end_ms=end_ms) == [expected]


@given(SEEDS)
def test_a_frame_is_what_its_head_says_or_is_left_to_the_twin(seed: int) -> None:
    chance = random.Random(seed)
    data = mutated(chance, random_region(chance, rare=0.05))
    count = chance.randrange(12)
    wanted = (count, 0, chance.randrange(20), 0, chance.choice((5, 2**63 - 1)), 10_000, 2**63 - 1)
    found = None if native is None else native.plain_batches(data, wanted)
    if found is None:
        return

    whole = b"".join(bytes(header) + bytes(records) for header, records, _ in found)
    assert len(found) == count
    assert [len(header) for header, _, _ in found] == [61] * count
    assert len(whole) == len(data)
    assert all(bytes(records) in data for _, records, _ in found)


@given(SEEDS)
def test_a_stamped_batch_is_the_same_with_the_twin(seed: int) -> None:
    chance = random.Random(seed)
    data = random_region(chance, batch_count=1, rare=0.5)
    if chance.random() < 0.3:
        data = mutated(chance, data)
    if native is None or len(data) < 61:
        return
    identity = ProducerId(chance.choice((0, 2**63 - 1))), ProducerEpoch(chance.choice((0, 2**15 - 1)))
    sequence = chance.choice((0, 2**31 - 1))
    batch, twin = detach(data), detach(data)

    delta = native.stamp(*batch, *identity, sequence)

    if delta < 0:
        assert batch.header == twin.header
        return
    patch_producer(twin, *identity, sequence)
    header = read_header(b"".join(batch))
    check_crc(b"".join(batch), 0, header)
    assert (batch.header, delta) == (twin.header, header.last_offset_delta)


def test_native_code_stamps_what_a_producer_may_send(module: NativeModule) -> None:
    assert module.stamp(*detach(PLAIN), 7, 1, 2) == 1
    assert module.stamp(*detach(PLAIN[:-1]), 7, 1, 2) == -1
    assert module.stamp(*detach(data_batch([record(0)], producer_id=5, is_transactional=True)), 7, 1, 2) == -1
    assert module.stamp(*detach(marker(0, 5, is_commit=True)), 7, 1, 2) == -1
    assert module.stamp(bytearray(60), memoryview(b""), 7, 1, 2) == -1


def test_records_are_views_of_the_frame(module: NativeModule) -> None:
    payload = bytearray(PLAIN)

    ((header, records, count),) = module.plain_batches(payload, (1, 0, 1, 0, 2, 1_000, 20)) or []

    assert (read_header(header).base_offset, read_header(header).partition_leader_epoch, count) == (0, -1, 2)
    assert records.obj is payload


@pytest.mark.parametrize("odd", [(), (1,) * 6, (1,) * 8, ("1",) * 7, None, 5])
def test_odd_arguments_are_refused(odd: object, module: NativeModule) -> None:
    with pytest.raises(TypeError):
        module.plain_batches(PLAIN, odd)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        module.plain_batches(odd, (1, 0, 1, 0, 2, 1_000, 20))  # type: ignore[arg-type]
    with pytest.raises((TypeError, OverflowError)):
        module.stamp(bytearray(61), memoryview(b""), 2**64, 1, 1)
    with pytest.raises(TypeError):
        module.stamp(bytes(61), memoryview(b""), 1, 1, 1)  # type: ignore[arg-type]
