"""The manifest: everything that a backup holds, as one immutable JSON document.

Manifests are numbered from 1 and never changed. The newest one is the backup; older ones tell its history, and the
objects that they name stay. ``document`` stores one whole, or as a delta on the one before it or on layers. Per
partition, segments and gaps together cover ``start_offset`` up to ``end_offset`` without a hole and without overlap
(``rules`` checks it before a manifest is written and after it is read).
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec

from quorate.backup.objects.names import layer_name
from quorate.backup.objects.stored_documents import (
    BatchBytes,
    Count,
    Generation,
    ManifestNumber,
    MomentMs,
    NamingRunId,
    PartitionCount,
    RecordTimestamp,
    Sha256,
    SizeBytes,
    StoredEpoch,
    StoredOffset,
    StoredPartition,
    StoredProducerId,
    seal,
)
from quorate.backup.segments.layout import EpochStart
from quorate.backup.segments.writer import FinishedSegment
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicName

FORMAT_VERSION = 4
#: Nothing of version 3 stands on layers; all else is the same.
READABLE_VERSIONS: Final = (3, FORMAT_VERSION)
#: A manifest stands on at most so many.
MAX_LAYERS: Final = 16


class Mode(StrEnum):
    SNAPSHOT = "snapshot"
    INCREMENTAL = "incremental"
    CONTINUOUS = "continuous"


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class GapReason(StrEnum):
    RETENTION = "retention"  # The cluster deleted the records before they were copied.
    EMPTY = "empty"  # The log has no batch there: compacted away, or never written. Nothing is missing.
    UNREADABLE = "unreadable"  # The broker gave no sound batch for these offsets.

    @property
    def is_loss(self) -> bool:
        """Whether records are, or may be, missing."""
        return self is not GapReason.EMPTY


class Gap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    start_offset: StoredOffset
    end_offset: StoredOffset
    reason: GapReason
    detail: str = ""


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One object. All fields but the last are as its footer has them, so they count what is in it."""

    name: str  # Below the backup's folder.
    size_bytes: SizeBytes
    sha256: Sha256
    start_offset: StoredOffset
    end_offset: StoredOffset
    first_offset: StoredOffset
    last_offset: StoredOffset
    min_timestamp: RecordTimestamp | None
    max_timestamp: RecordTimestamp | None
    batch_count: Count
    record_count: Count
    control_record_count: Count = 0
    batch_bytes: SizeBytes
    largest_batch_bytes: BatchBytes
    is_plain: bool = False
    superseded_from_offset: StoredOffset | None = None  # From here on a later segment holds what the log has now.

    @property
    def live_end_offset(self) -> Offset:
        """Only batches that begin before this offset count."""
        return self.end_offset if self.superseded_from_offset is None else self.superseded_from_offset

    @property
    def live_record_count(self) -> int:
        """Records of data: without markers of transactions, and without what a truncation has superseded.

        Of a segment that was cut, that is how many can be left at the offsets before the cut. See ``count_is_exact``.
        """
        data = self.record_count - self.control_record_count
        if self.superseded_from_offset is None:
            return data
        return max(0, min(data, self.superseded_from_offset - self.first_offset))

    @property
    def count_is_exact(self) -> bool:
        """Whether ``live_record_count`` is more than a bound."""
        return self.is_plain or self.superseded_from_offset is None

    @property
    def record_end_offset(self) -> Offset:
        """The offset behind its last record that counts: its last batch may reach beyond ``end_offset``."""
        if self.superseded_from_offset is not None:
            return self.superseded_from_offset
        return Offset(max(self.end_offset, self.last_offset + 1))


class SupersededTail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Offsets that were copied and then truncated by the cluster. What was copied is kept, aside."""

    start_offset: StoredOffset
    end_offset: StoredOffset
    leader_epoch: StoredEpoch  # The last one copied before the truncation.
    found_in_manifest: ManifestNumber
    segments: list[SegmentEntry] = []  # Those that no live offset is left of.


class AbortedTransactionEntry(msgspec.Struct, frozen=True, array_like=True, order=True):
    first_offset: StoredOffset
    producer_id: StoredProducerId


class PartitionEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    partition: StoredPartition
    start_offset: StoredOffset
    end_offset: StoredOffset  # The next run goes on from here.
    captured_start_offset: StoredOffset  # The log's own ends when the run began, and the epoch of who told them.
    captured_end_offset: StoredOffset
    captured_leader_epoch: StoredEpoch = NO_LEADER_EPOCH
    segments: list[SegmentEntry] = []
    gaps: list[Gap] = []
    superseded: list[SupersededTail] = []
    leader_epochs: list[EpochStart] = []
    aborted_transactions: list[AbortedTransactionEntry] = []

    @property
    def losses(self) -> list[Offset]:
        """Where records are, or may be, missing: no transaction can be followed across these offsets."""
        return sorted(gap.start_offset for gap in self.gaps if gap.reason.is_loss)

    @property
    def is_complete(self) -> bool:
        """Whether all that was captured is here."""
        return self.end_offset >= self.captured_end_offset

    @property
    def last_leader_epoch(self) -> LeaderEpoch | None:
        """The epoch to ask a cluster about: unless it ends below ``end_offset``, nothing copied was truncated.

        The captured one is better than the last batch's: offsets behind that batch may have been empty when they were
        passed over, and be written anew after a truncation.
        """
        if self.captured_leader_epoch >= 0:
            return self.captured_leader_epoch
        return self.leader_epochs[-1].leader_epoch if self.leader_epochs else None


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One life of a topic: a topic that was deleted and created again has an entry for each of its ids."""

    name: TopicName
    topic_id: TopicId
    generation: Generation  # 1 for the first life that this backup saw.
    is_internal: bool = False
    partition_count: PartitionCount
    configs: dict[str, str] = {}  # Those that differ from the broker's defaults.
    partitions: list[PartitionEntry] = []  # In order; one is missing only where it was never reached.


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    topic: TopicName
    partition: StoredPartition
    offset: StoredOffset
    leader_epoch: StoredEpoch = NO_LEADER_EPOCH
    metadata: str = ""


class GroupEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    group: str
    captured_ms: MomentMs
    state: str = ""
    protocol_type: str = ""
    offsets: list[GroupOffset] = []


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked for and is not in the backup."""

    message: str
    topic: TopicName | None = None
    partition: StoredPartition | None = None
    group: str | None = None


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run was told to do. Holds no secrets."""

    mode: Mode
    isolation: Isolation
    compression: Literal["none", "lz4", "zstd"]
    include: list[str] = []
    exclude: list[str] = []


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """An object with what a manifest said, as a delta on the layers below it, for later manifests to be deltas on.

    It outlives that manifest: like a segment it stays until no manifest names it.
    """

    number: ManifestNumber  # Of that manifest, and the run that published it, or was about to.
    run_id: NamingRunId
    size_bytes: SizeBytes

    @property
    def name(self) -> str:
        return layer_name(self.number, self.run_id)


#: The lowest, which is stored whole, comes first.
Layers = Annotated[list[Layer], msgspec.Meta(max_length=MAX_LAYERS)]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    format_version: int
    number: ManifestNumber
    backup_id: str
    cluster_id: str
    run_id: str  # Tells this run's manifest from that of a run beside it.
    created_ms: MomentMs
    captured_ms: MomentMs  # When the end offsets were taken: the moment that the backup shows.
    settings: RunSettings
    topics: list[TopicEntry] = []
    groups: list[GroupEntry] = []
    failures: list[Failure] = []
    compacted_from: ManifestNumber | None = None  # The manifest that says the same with smaller segments.
    layers: Layers = []  # What it is stored on, or those before it in a row of deltas.

    @property
    def is_complete(self) -> bool:
        """Whether the newest run got all that it was asked for."""
        return not self.failures

    def latest(self, name: str) -> TopicEntry | None:
        """The newest life of the topic."""
        lives = [topic for topic in self.topics if topic.name == name]
        return max(lives, key=lambda topic: topic.generation, default=None)

    def find(self, topic_id: TopicId, name: str) -> TopicEntry | None:
        return next((topic for topic in self.topics if topic.topic_id == topic_id and topic.name == name), None)

    def object_names(self) -> set[str]:
        """Every object that this manifest names, superseded ones too."""
        return {segment.name for segment in self.segments()} | {layer.name for layer in self.layers}

    def object_sizes(self) -> dict[str, int]:
        """The same, with the size of each."""
        objects: list[SegmentEntry | Layer] = [*self.segments(), *self.layers]
        return {each.name: each.size_bytes for each in objects}

    def segments(self) -> Iterator[SegmentEntry]:
        """Every segment, superseded ones too."""
        for topic in self.topics:
            for partition in topic.partitions:
                yield from partition.segments
                for tail in partition.superseded:
                    yield from tail.segments


def segment_entry(name: str, finished: FinishedSegment) -> SegmentEntry:
    footer = finished.footer
    return SegmentEntry(
        name=name,
        size_bytes=finished.size_bytes,
        sha256=finished.sha256,
        start_offset=footer.start_offset,
        end_offset=footer.end_offset,
        first_offset=footer.first_offset,
        last_offset=footer.last_offset,
        min_timestamp=footer.min_timestamp,
        max_timestamp=footer.max_timestamp,
        batch_count=footer.batch_count,
        record_count=footer.record_count,
        control_record_count=footer.control_record_count,
        batch_bytes=footer.batch_bytes,
        largest_batch_bytes=footer.largest_batch_bytes,
        is_plain=footer.is_plain,
    )


def encode_manifest(manifest: Manifest) -> bytes:
    return seal(msgspec.json.encode(manifest))
