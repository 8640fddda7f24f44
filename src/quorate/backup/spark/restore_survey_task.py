"""Reads source partitions before a restore: is every object whole, and what will be written? Runs in a Spark worker."""

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject, open_storage
from quorate.backup.restore.batches import RecordRules
from quorate.backup.restore.survey import PartitionSurvey, Surveyor, goes_whole
from quorate.backup.segments.verification import verified_batches, verify_hash
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, TopicName


class SurveyRequest(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName  # At the source.
    rules: RecordRules
    segments: list[SegmentEntry]
    losses: list[Offset]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class SurveyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName
    survey: PartitionSurvey | None
    damage: str | None = None


class SurveyTask:
    """The work of a job: called with the encoded requests of one task."""

    def __init__(self, location: StorageLocation) -> None:
        self._location = location

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        requests = msgspec.msgpack.decode(task, type=list[SurveyRequest])
        storage = open_storage(self._location)
        answers = [_answer(storage, request, report) for request in requests]
        records = sum(0 if answer.survey is None else answer.survey.record_count for answer in answers)
        return Outcome(msgspec.msgpack.encode(answers), sum(request.size_bytes for request in requests), records)


def _answer(storage: ObjectStorage, request: SurveyRequest, report: Report) -> SurveyAnswer:
    surveyor = Surveyor(request.rules, request.losses)
    for index, entry in enumerate(request.segments):
        try:
            source = StoredObject(storage, entry.name)
            if goes_whole(entry, request.rules):
                verify_hash(source, entry)
                surveyor.add_whole_segment(index, entry)
            else:
                surveyor.add_segment(index, entry, verified_batches(source, entry))
            report(entry.size_bytes, entry.record_count)
        except BackupError as error:
            return SurveyAnswer(topic=request.topic, survey=None, damage=str(error))
        except QuorateError as error:
            return SurveyAnswer(topic=request.topic, survey=None, damage=f"segment {entry.name} is damaged: {error}")
    return SurveyAnswer(topic=request.topic, survey=surveyor.finish(len(request.segments)))
