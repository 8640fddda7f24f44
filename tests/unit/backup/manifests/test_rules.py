"""What holds in every manifest, also where most of one is known to be sound: nothing new slips in behind that."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.errors import DamagedManifest
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    Gap,
    GapReason,
    Isolation,
    Manifest,
    Mode,
    PartitionEntry,
    RunSettings,
    SegmentEntry,
    SupersededTail,
    TopicEntry,
)
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.objects import names
from quorate.backup.objects.names import segment_name
from quorate.kernel.ids import NO_TOPIC_ID, LeaderEpoch, Offset, PartitionIndex, TopicName
from tests.unit.backup.batches import CLUSTER_ID, TOPIC, TOPIC_ID

OTHER = TopicName("payments")


def segment(topic: TopicName, index: int, start: int, end: int, attempt: str = "run-1") -> SegmentEntry:
    return SegmentEntry(
        name=segment_name(topic, TOPIC_ID, PartitionIndex(index), Offset(start), attempt),
        size_bytes=1000,
        sha256="0" * 64,
        start_offset=Offset(start),
        end_offset=Offset(end),
        first_offset=Offset(start),
        last_offset=Offset(end - 1),
        min_timestamp=1,
        max_timestamp=2,
        batch_count=1,
        record_count=end - start,
        batch_bytes=1000,
        largest_batch_bytes=1000,
        is_plain=True,
    )


def partition(topic: TopicName, index: int) -> PartitionEntry:
    """Two segments, a gap, a segment; and what a truncation at 40 left of another one."""
    return PartitionEntry(
        partition=PartitionIndex(index),
        start_offset=Offset(10),
        end_offset=Offset(50),
        captured_start_offset=Offset(0),
        captured_end_offset=Offset(50),
        segments=[segment(topic, index, 10, 20), segment(topic, index, 20, 30), segment(topic, index, 40, 50)],
        gaps=[Gap(start_offset=Offset(30), end_offset=Offset(40), reason=GapReason.EMPTY)],
        superseded=[
            SupersededTail(
                start_offset=Offset(40),
                end_offset=Offset(60),
                leader_epoch=LeaderEpoch(1),
                found_in_manifest=2,
                segments=[segment(topic, index, 40, 50, "run-0"), segment(topic, index, 50, 60, "run-0")],
            )
        ],
    )


def topic(name: TopicName) -> TopicEntry:
    partitions = [partition(name, 0), partition(name, 1)]
    return TopicEntry(name=name, topic_id=TOPIC_ID, generation=1, partition_count=2, partitions=partitions)


CHECKED = Manifest(
    format_version=FORMAT_VERSION,
    number=7,
    backup_id="nightly",
    cluster_id=CLUSTER_ID,
    run_id="seven",
    created_ms=1,
    captured_ms=1,
    settings=RunSettings(mode=Mode.CONTINUOUS, isolation=Isolation.READ_COMMITTED, compression="zstd"),
    topics=[topic(TOPIC), topic(OTHER)],
)
OFFSETS = st.sampled_from([0, 10, 20, 29, 30, 40, 50, 55, 60, 70])
FIELDS = ["start_offset", "end_offset", "first_offset", "last_offset", "superseded_from_offset", "record_count"]


def replaced(items: list[Any], place: int, put: list[Any]) -> list[Any]:
    return [*items[:place], *put, *items[place + 1 :]]


def with_partition(manifest: Manifest, at: int, index: int, entry: PartitionEntry) -> Manifest:
    changed = msgspec.structs.replace(
        manifest.topics[at], partitions=replaced(manifest.topics[at].partitions, index, [entry])
    )
    return msgspec.structs.replace(manifest, topics=replaced(manifest.topics, at, [changed]))


@st.composite
def changed_lists(draw: st.DrawFn, entry: PartitionEntry, name: TopicName, index: int) -> PartitionEntry:
    """One thing about the partition is another: nearly always one that cannot be."""
    added = draw(
        st.builds(
            segment,
            st.sampled_from([name, TOPIC, OTHER]),
            st.sampled_from([index, 0, 1]),
            OFFSETS.filter(bool),
            st.sampled_from([60, 65, 70]),
            st.sampled_from(["run-0", "run-1", "run-2"]),
        ).filter(lambda each: each.start_offset < each.end_offset)
    )
    match draw(
        st.sampled_from(
            ["append", "append and end", "change", "drop", "gap", "more gaps", "start", "bounds", "tail", "swap"]
        )
    ):
        case "append":
            return msgspec.structs.replace(entry, segments=[*entry.segments, added])
        case "append and end":
            return msgspec.structs.replace(
                entry, segments=[*entry.segments, added], end_offset=max(entry.end_offset, added.end_offset)
            )
        case "change":
            place = draw(st.integers(0, len(entry.segments) - 1)) if entry.segments else 0
            old = entry.segments[place : place + 1] or [added]
            new = msgspec.structs.replace(old[0], **{draw(st.sampled_from(FIELDS)): draw(OFFSETS)})
            return msgspec.structs.replace(entry, segments=replaced(entry.segments, place, [new]))
        case "drop":
            return msgspec.structs.replace(entry, segments=replaced(entry.segments, draw(st.integers(0, 3)), []))
        case "gap":
            gap = Gap(start_offset=Offset(30), end_offset=Offset(draw(OFFSETS)), reason=GapReason.EMPTY)
            return msgspec.structs.replace(entry, gaps=[gap])
        case "start":
            return msgspec.structs.replace(entry, start_offset=Offset(draw(OFFSETS)))
        case "more gaps":
            start, end = Offset(draw(OFFSETS)), Offset(draw(OFFSETS))
            gap = Gap(start_offset=start, end_offset=end, reason=GapReason.RETENTION)
            return msgspec.structs.replace(entry, gaps=[*entry.gaps, gap], end_offset=draw(OFFSETS))
        case "bounds":
            return msgspec.structs.replace(entry, start_offset=draw(OFFSETS), end_offset=draw(OFFSETS))
        case "tail":
            tail = msgspec.structs.replace(entry.superseded[0], segments=[*entry.superseded[0].segments, added])
            return msgspec.structs.replace(entry, superseded=[tail])
        case _:
            return msgspec.structs.replace(entry, segments=entry.segments[::-1])


@st.composite
def following(draw: st.DrawFn) -> Manifest:
    manifest = msgspec.structs.replace(CHECKED, number=8, run_id="eight")
    for _ in range(draw(st.integers(1, 3))):
        at, index = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        entry = manifest.topics[at].partitions[index]
        changed = draw(changed_lists(entry, manifest.topics[at].name, index))
        manifest = with_partition(manifest, at, index, changed)
    return manifest


def verdict(manifest: Manifest, checked: Manifest | None) -> str | None:
    try:
        check_manifest(manifest, checked)
    except DamagedManifest as error:
        return str(error)
    return None


def test_what_is_made_here_is_sound() -> None:
    assert verdict(CHECKED, None) is None


@settings(max_examples=200, deadline=None)
@given(following())
def test_a_manifest_is_judged_the_same_whether_the_one_before_is_known_to_be_sound_or_not(manifest: Manifest) -> None:
    assert (verdict(manifest, CHECKED) is None) == (verdict(manifest, None) is None)


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        (segment(TOPIC, 0, 50, 60), None),
        (segment(TOPIC, 0, 50, 60, "run-0"), "partition orders-0 names .* twice"),
        (segment(TOPIC, 1, 50, 60), "partition orders-0 names .* which is not the name of its segment"),
        (segment(OTHER, 0, 50, 60), "partition orders-0 names .* which is not the name of its segment"),
        (segment(TOPIC, 0, 51, 60), "nothing, or two things, for the offsets at 50"),
        (segment(TOPIC, 0, 50, 61), "covered up to offset 61, not 60"),
        (
            msgspec.structs.replace(segment(TOPIC, 0, 50, 60), first_offset=Offset(49), record_count=11),
            "offset 49 is in two segments",
        ),
        (
            msgspec.structs.replace(segment(TOPIC, 0, 50, 60), record_count=11),
            "11 records cannot have the offsets 50 to 59",
        ),
    ],
)
def test_a_new_segment_behind_those_that_were_checked_is_checked(added: SegmentEntry, complaint: str | None) -> None:
    entry = CHECKED.topics[0].partitions[0]
    longer = msgspec.structs.replace(entry, segments=[*entry.segments, added], end_offset=Offset(60))
    manifest = with_partition(CHECKED, 0, 0, longer)

    for checked in (None, CHECKED):
        if complaint is None:
            check_manifest(manifest, checked)
        else:
            with pytest.raises(DamagedManifest, match=complaint):
                check_manifest(manifest, checked)


def test_only_what_is_new_is_checked_where_the_one_before_was(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def counted(name: str, folder: str, base_offset: Offset) -> bool:
        looked_at.append(name)
        return names.is_name_of_segment(name, folder, base_offset)

    monkeypatch.setattr("quorate.backup.manifests.rules.is_name_of_segment", counted)
    added = segment(TOPIC, 0, 50, 60)
    entry = CHECKED.topics[0].partitions[0]
    longer = msgspec.structs.replace(entry, segments=[*entry.segments, added], end_offset=Offset(60))
    check_manifest(with_partition(CHECKED, 0, 0, longer), CHECKED)

    assert looked_at == [added.name]


def test_two_topics_never_share_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where clusters have no ids, a hash tells folders apart: somebody might find two names that have the same one."""
    monkeypatch.setattr(names, "_HASH_LENGTH", 0)
    long = [TopicName("a" * 180 + end) for end in "bc"]
    manifest = msgspec.structs.replace(
        CHECKED,
        topics=[TopicEntry(name=name, topic_id=NO_TOPIC_ID, generation=1, partition_count=0) for name in long],
    )
    with pytest.raises(DamagedManifest, match="has two topics in one folder"):
        check_manifest(manifest)
