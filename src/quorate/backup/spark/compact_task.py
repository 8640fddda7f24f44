"""One task of a compaction: merge its groups of segments, report. Runs in a Spark worker.

Safe to run twice: every attempt writes objects of its own, and only the driver's manifest makes them count.
"""

import uuid

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.names import attempt_name
from quorate.backup.objects.storage import StorageLocation, open_storage
from quorate.backup.retention.compaction import MergeGroup, merge_segments
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.spark.session.tasks import Outcome, Report, ignore


class CompactSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of a run share."""

    run_id: str
    cluster_id: str
    location: StorageLocation  # Of the backup's own folder.
    codec: FrameCodec


class MergeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    group: MergeGroup
    merged: SegmentEntry | None
    fault: str | None = None  # Why the group stays as it is.


class CompactTask:
    """The work of a job: called with the encoded groups of one task."""

    def __init__(self, settings: CompactSettings) -> None:
        self._settings = settings

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        groups = msgspec.msgpack.decode(task, type=list[MergeGroup])
        answers = [self._merge(group, report) for group in groups]
        records = sum(0 if each.merged is None else each.merged.live_record_count for each in answers)
        return Outcome(msgspec.msgpack.encode(answers), sum(group.size_bytes for group in groups), records)

    def _merge(self, group: MergeGroup, report: Report) -> MergeAnswer:
        settings = self._settings
        try:
            merged = merge_segments(
                open_storage(settings.location),
                group,
                cluster_id=settings.cluster_id,
                codec=settings.codec,
                attempt=attempt_name(settings.run_id, uuid.uuid4().hex),
            )
        except BackupError as error:
            return MergeAnswer(group=group, merged=None, fault=str(error))
        report(group.size_bytes, merged.record_count)
        return MergeAnswer(group=group, merged=merged)
