"""Stretches: native code and its twin find the same, and a copy by stretches is the copy batch by batch."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.names import segment_name
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.planning.ranges import OffsetRange, Placement
from quorate.backup.segments import range_copier, stretches
from quorate.backup.segments.batch_summary import iterate_summaries
from quorate.backup.segments.layout import FrameCodec, SegmentHeader
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.backup.segments.stretches import Stretch, StretchRules, follow, follow_summaries
from quorate.backup.segments.writer import SegmentWriter
from quorate.client.fetch.batches import FetchedBatches, walk_batches
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset
from quorate.kernel.native import native
from tests.unit.backup.batches import CLUSTER_ID, offset_range
from tests.unit.backup.memory_storage import MemoryStorage
from tests.unit.client.region_bytes import mutated, random_region, raw_batch

SEEDS = st.integers(0, 2**64 - 1)
LAST_OFFSET = 2**63 - 1
ROOM_BYTES = 1 << 20
FRAME_BYTES = 700

Take = Callable[[RangeCopier, bytes, bool], None]


def rules(
    *, room_bytes: int = ROOM_BYTES, end_offset: int = LAST_OFFSET, ends_before: bool = False, epoch: int = 3
) -> StretchRules:
    return StretchRules(
        room_bytes=room_bytes,
        next_offset=Offset(0),
        end_offset=Offset(end_offset),
        ends_before=ends_before,
        leader_epoch=LeaderEpoch(epoch),
        is_compressed=False,
    )


def random_rules(chance: random.Random) -> StretchRules:
    return StretchRules(
        room_bytes=chance.choice((-1, 0, 61, 300, ROOM_BYTES)),
        next_offset=Offset(chance.choice((0, 0, 2, LAST_OFFSET))),
        end_offset=Offset(chance.choice((0, 5, 9, LAST_OFFSET))),
        ends_before=chance.random() < 0.5,
        leader_epoch=LeaderEpoch(chance.choice((-1, 3, 4))),
        is_compressed=chance.random() < 0.2,
    )


def compare(data: bytes, position: int, wanted: StretchRules) -> None:
    region = memoryview(data)
    assert follow(region, position, wanted) == follow_summaries(region, position, wanted)


@given(SEEDS)
def test_both_find_the_same_stretch(seed: int) -> None:
    chance = random.Random(seed)
    data = random_region(chance, base_offset=chance.choice((0, 0, LAST_OFFSET - 8)), rare=chance.choice((0.0, 0.2)))
    starts = [batch.position for batch in walk_batches(memoryview(data))]
    compare(data, chance.choice([0, len(data), *starts]), random_rules(chance))


@given(SEEDS)
def test_both_find_the_same_stretch_in_damaged_bytes(seed: int) -> None:
    chance = random.Random(seed)
    data = mutated(chance, random_region(chance, rare=0.05))
    compare(data, 0, rules(room_bytes=chance.choice((200, ROOM_BYTES)), end_offset=chance.choice((7, LAST_OFFSET))))


@pytest.mark.parametrize("position", [-1, -(2**63), 62, 2**63 - 1])
def test_a_position_outside_of_the_region_has_no_stretch(position: int) -> None:
    assert native is None or native.follow(raw_batch(0, 1), position, rules())[0] == 0


def test_a_stretch_sums_up_its_batches() -> None:
    data = memoryview(
        raw_batch(0, 2, base_timestamp=50, max_timestamp=90)
        + raw_batch(4, 1, attributes=0x20, base_timestamp=-1, max_timestamp=20, payload=b"marker")
        + raw_batch(5, 3, attributes=0x08, base_timestamp=1, max_timestamp=60)
        + raw_batch(8, 0, last_offset_delta=1, base_timestamp=3, max_timestamp=99)
    )

    for find in (follow, follow_summaries):
        assert find(data, 0, rules()) == Stretch(
            batch_count=4,
            size_bytes=len(data),
            last_offset=Offset(9),
            record_count=6,
            control_record_count=1,
            min_timestamp=50,
            max_timestamp=90,
            largest_batch_bytes=67,
            is_plain=False,
        )


PLAIN = [raw_batch(offset, 1) for offset in range(3)]


@pytest.mark.parametrize(
    ("last", "wanted"),
    [
        (raw_batch(3, 1, leader_epoch=4), rules()),
        (raw_batch(3, 1, attributes=4), rules()),
        (raw_batch(2, 2), rules()),
        (raw_batch(5, 0, last_offset_delta=-1), rules()),
        (raw_batch(3, 1, attributes=0x40), rules()),
        (raw_batch(LAST_OFFSET, 1), rules()),
        (raw_batch(3, 1, payload=b"value"), rules(room_bytes=4 * 61)),
        (raw_batch(3, 1), rules(end_offset=3)),
        (raw_batch(3, 2), rules(end_offset=4, ends_before=True)),
        (raw_batch(3, 1)[:-1], rules()),
        (b"\0" * 16 + b"\1" + b"\0" * 60, rules()),
    ],
)
def test_a_stretch_ends_before_a_batch_at_which_something_happens(last: bytes, wanted: StretchRules) -> None:
    data = memoryview(b"".join(PLAIN) + last)

    for find in (follow, follow_summaries):
        stretch = find(data, 0, wanted)
        assert (stretch.batch_count, stretch.last_offset, stretch.is_plain) == (3, 2, True)


def take_by_stretches(copier: RangeCopier, region: bytes, is_last: bool) -> None:
    memory = bytearray(region)
    copier.take(fetched(copier, memory, is_last=is_last))
    memory[:] = bytes(len(memory))  # It is used again.


def take_batch_by_batch(copier: RangeCopier, region: bytes, is_last: bool) -> None:
    if copier.result is not None:
        return
    for position, summary in iterate_summaries(region, strict=True):
        batch = region[position : position + summary.size_bytes]
        if copier.record(batch, summary) is Placement.BEYOND:
            break
    copier.take(fetched(copier, b"", is_last=is_last))


def fetched(copier: RangeCopier, region: bytes | bytearray, *, is_last: bool) -> FetchedBatches:
    data = memoryview(region)
    return FetchedBatches(
        range=copier.fetch_range,
        data=data,
        batch_count=len(walk_batches(data)),
        next_offset=copier.next_offset,
        high_watermark=Offset(LAST_OFFSET),
        last_stable_offset=Offset(LAST_OFFSET),
        log_start_offset=Offset(0),
        aborted_transactions=[],
        node_id=NodeId(1),
        leader_epoch=LeaderEpoch(3),
        is_last=is_last or copier.is_done,
    )


def copy(regions: list[bytes], wanted: OffsetRange, settings: SegmentSettings, take: Take) -> tuple[object, ...]:
    storage = MemoryStorage()
    copier = RangeCopier(storage, wanted, cluster_id=CLUSTER_ID, attempt="a", settings=settings, now_ms=lambda: 0)
    for number, region in enumerate(regions, 1):
        take(copier, region, number == len(regions))
    result: RangeResult | None = copier.result
    return storage.contents, result, copier.next_offset, copier.record_count, copier.batch_bytes


def open_small_frames(
    storage: ObjectStorage, header: SegmentHeader, *, codec: FrameCodec, attempt: str
) -> SegmentWriter:
    name = segment_name(header.topic, header.topic_id, header.partition, header.start_offset, attempt)
    return SegmentWriter(name, storage.open_upload(name), header, codec, frame_bytes=FRAME_BYTES)


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_copier, "open_segment", open_small_frames)


@pytest.mark.parametrize("is_native", [True, False])
@pytest.mark.parametrize("seed", range(150))
@pytest.mark.usefixtures("small_frames")
def test_a_copy_by_stretches_is_the_copy_batch_by_batch(
    seed: int, is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects and results are the same, byte for byte."""
    chance = random.Random(seed)
    regions, offset = [], chance.choice((0, 40))
    for _ in range(chance.randrange(1, 4)):
        region = random_region(chance, base_offset=offset, batch_count=30, rare=chance.choice((0.0, 0.1, 0.3)))
        regions.append(region)
        offset = max((batch.last_offset + 1 for batch in walk_batches(memoryview(region))), default=offset)
    bounds = sorted(chance.randrange(-5, 80) for _ in range(2))
    wanted = offset_range(
        max(0, bounds[0]), max(1, bounds[1]), is_first=chance.random() < 0.5, is_last=chance.random() < 0.5
    )
    settings = SegmentSettings(codec=chance.choice(list(FrameCodec)), max_bytes=chance.choice((900, 2_500, 100_000)))
    if not is_native:
        monkeypatch.setattr(stretches, "native", None)

    assert copy(regions, wanted, settings, take_by_stretches) == copy(regions, wanted, settings, take_batch_by_batch)


@pytest.mark.parametrize("odd", [(), (1,) * 5, (1,) * 7, ("1",) * 6, None, 5])
@pytest.mark.skipif(native is None, reason="no native module")
def test_odd_rules_are_refused(odd: object) -> None:
    assert native is not None
    with pytest.raises(TypeError):
        native.follow(raw_batch(0, 1), 0, odd)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.follow(odd, 0, rules())  # type: ignore[arg-type]
