"""The stream that Spark sees: micro-batches over a live cluster. Does I/O.

Spark's checkpoint is the only memory: every question is answered from the position that it hands in and from what the
cluster says now. A position names each topic's id and each partition's leader epoch beside its offset: an offset alone
does not tell that a topic was deleted and created again, or that a log was truncated and written anew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from quorate.backup.spark.data_source.live_planning import LivePartition, look_at, pack_tasks, wanted_offsets
from quorate.backup.spark.data_source.live_reading import DataLoss
from quorate.backup.spark.data_source.options import SourceOptions
from quorate.backup.spark.data_source.worker import read_task
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.decoding import convert
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition
from quorate.records.columnar import INT64_MAX

if TYPE_CHECKING:
    import pyarrow


class PartitionPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    offset: Offset  # The next one to be read.
    leader_epoch: LeaderEpoch  # The newest one when the offset was taken.
    #: Where the batch that ends here begins, if that is not where the last one ended: the partition is new, or
    #: records are missing.
    begin: Offset | None = None


class TopicPosition(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partitions: dict[PartitionIndex, PartitionPosition]


StreamPosition = dict[TopicName, TopicPosition]


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Records that the stream should have had and cannot get."""

    message: str
    begin: Offset  # Where it can go on.


def encode_position(position: StreamPosition) -> dict[str, Any]:
    """Sorted, since Spark compares the texts."""
    ordered = {
        name: TopicPosition(topic_id=topic.topic_id, partitions=dict(sorted(topic.partitions.items())))
        for name, topic in sorted(position.items())
    }
    encoded: dict[str, Any] = msgspec.to_builtins(ordered, str_keys=True)
    return encoded


def decode_position(raw: Mapping[str, Any]) -> StreamPosition:
    return convert(raw, StreamPosition, strict=False)


def find_loss(
    start: StreamPosition, partition: LivePartition, diverging: Mapping[TopicPartition, Offset]
) -> Loss | None:
    """``diverging`` has the partitions whose log was truncated since, and to which offset."""
    name, log_start = partition.name, partition.log_start_offset
    topic = start.get(name.topic)
    known = None if topic is None else topic.partitions.get(name.partition)
    if topic is not None and topic.topic_id != partition.topic_id:
        return Loss(message=f"topic {name.topic} was deleted and created again", begin=log_start)
    if known is None:
        if log_start == 0:
            return None
        message = f"offsets 0 to {log_start - 1} of the new partition {name} were deleted before they were read"
        return Loss(message=message, begin=log_start)
    if name in diverging or known.offset > partition.end_offset:
        begin = Offset(min(diverging.get(name, partition.end_offset), partition.end_offset))
        message = f"partition {name} was truncated to offset {begin} after it was read up to {known.offset}"
        return Loss(message=message, begin=max(begin, log_start))
    if known.offset < log_start:
        message = f"offsets {known.offset} to {log_start - 1} of partition {name} were deleted before they were read"
        return Loss(message=message, begin=log_start)
    return None


def missing_partitions(start: StreamPosition, partitions: Iterable[LivePartition]) -> list[TopicPartition]:
    """Those that the stream has read and the cluster no longer has."""
    present = {each.name for each in partitions}
    known = (TopicPartition(name, index) for name, topic in start.items() for index in topic.partitions)
    return sorted(name for name in known if name not in present)


def advance(
    start: StreamPosition,
    partitions: Iterable[LivePartition],
    begins: Mapping[TopicPartition, Offset],
    max_offsets: int | None,
) -> StreamPosition:
    """Where the next batch ends. ``begins`` has the partitions that do not go on where they were."""
    partitions = list(partitions)
    firsts = {each.name: _first_offset(start, each.name, begins) for each in partitions}
    shares = _share({each.name: max(0, each.end_offset - firsts[each.name]) for each in partitions}, max_offsets)
    position: StreamPosition = {}
    for each in partitions:
        known = _known(start, each.name)
        begin = firsts[each.name] if known is None or each.name in begins else None
        if known is not None and begin is None and not shares[each.name]:
            taken = known
        else:
            offset = Offset(firsts[each.name] + shares[each.name])
            taken = PartitionPosition(offset=offset, leader_epoch=each.end_epoch, begin=begin)
        topic = position.setdefault(each.name.topic, TopicPosition(topic_id=each.topic_id, partitions={}))
        topic.partitions[each.name.partition] = taken
    return position


def spans_between(start: StreamPosition, end: StreamPosition) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """What the batch between two positions holds."""
    spans: dict[TopicPartition, tuple[Offset, Offset]] = {}
    for name, topic in end.items():
        for index, reached in topic.partitions.items():
            partition = TopicPartition(name, index)
            known = _known(start, partition)
            if known == reached and start[name].topic_id == topic.topic_id:
                continue
            begin = reached.begin if reached.begin is not None or known is None else known.offset
            if (begin or 0) < reached.offset:
                spans[partition] = (begin or Offset(0), reached.offset)
    return spans


def _known(position: StreamPosition, name: TopicPartition) -> PartitionPosition | None:
    topic = position.get(name.topic)
    return None if topic is None else topic.partitions.get(name.partition)


def _first_offset(start: StreamPosition, name: TopicPartition, begins: Mapping[TopicPartition, Offset]) -> Offset:
    """A partition that the stream has not seen is read from its beginning."""
    known = _known(start, name)
    return begins.get(name, Offset(0) if known is None else known.offset)


def _share(backlog: Mapping[TopicPartition, int], limit: int | None) -> dict[TopicPartition, int]:
    """At most ``limit`` offsets, by how many each partition has; what is left over goes to the longest."""
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(backlog)
    shares = {name: count * limit // total for name, count in backlog.items()}
    left = limit - sum(shares.values())
    for name in sorted(backlog, key=lambda name: backlog[name] - shares[name], reverse=True)[:left]:
        shares[name] += 1
    return shares


class QuorateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        if not isinstance(options.source, ClientConfig):
            raise QuorateError("a backup has an end and is no stream: use spark.read, or give bootstrap_servers")
        if options.end_ms != INT64_MAX or not options.end_offsets.is_default:
            raise QuorateError("a stream has no end: the options end_offset and end_time are for spark.read")
        self._options = options
        self._client_config = options.source
        self._target: list[LivePartition] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with KafkaClient(self._client_config) as client:
            partitions = look_at(client, self._options)
            spans = wanted_offsets(client, partitions, self._options)
        position: StreamPosition = {}
        for each in partitions:
            topic = position.setdefault(each.name.topic, TopicPosition(topic_id=each.topic_id, partitions={}))
            topic.partitions[each.name.partition] = PartitionPosition(
                offset=spans[each.name][0], leader_epoch=each.end_epoch
            )
        return encode_position(position)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_records_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with KafkaClient(self._client_config) as client:
            self._target = look_at(client, self._options, must_exist=self._options.fail_on_data_loss)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        position = decode_position(start)
        with KafkaClient(self._client_config) as client:
            partitions = self._target
            if partitions is None:
                partitions = look_at(client, self._options, must_exist=self._options.fail_on_data_loss)
            diverging = _find_diverging(client, position, partitions)
        begins = self._losses(position, partitions, diverging)
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return encode_position(advance(position, partitions, begins, max_offsets))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        reached = decode_position(end)
        spans = spans_between(decode_position(start), reached)
        with KafkaClient(self._client_config) as client:
            partitions = look_at(client, self._options, must_exist=self._options.fail_on_data_loss)
        # Another topic of the same name is not the one whose offsets these are.
        present = [
            each for each in partitions if each.name in spans and each.topic_id == reached[each.name.topic].topic_id
        ]
        gone = sorted(spans.keys() - {each.name for each in present})
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(f"partition {gone[0]} is gone before all of it was read")
        return [InputPartition(task) for task in pack_tasks(present, spans, self._client_config, self._options)]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return read_task(partition)

    def _losses(
        self,
        position: StreamPosition,
        partitions: Sequence[LivePartition],
        diverging: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, Offset]:
        """Where partitions go on whose records are missing; an error unless the user said to go on."""
        begins: dict[TopicPartition, Offset] = {}
        for each in partitions:
            loss = find_loss(position, each, diverging)
            if loss is not None and self._options.fail_on_data_loss:
                raise DataLoss(loss.message)
            if loss is not None:
                begins[each.name] = loss.begin
        gone = missing_partitions(position, partitions)
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(f"partition {gone[0]} is gone")
        return begins


def _find_diverging(
    client: KafkaClient, position: StreamPosition, partitions: Sequence[LivePartition]
) -> dict[TopicPartition, Offset]:
    """The logs that were truncated below what was read of them, asked only where the leader epoch has changed."""
    epochs: dict[TopicPartition, LeaderEpoch] = {}
    offsets: dict[TopicPartition, Offset] = {}
    for each in partitions:
        topic = position.get(each.name.topic)
        known = None if topic is None else topic.partitions.get(each.name.partition)
        if known is not None and 0 <= known.leader_epoch != each.end_epoch:
            epochs[each.name], offsets[each.name] = known.leader_epoch, known.offset
    ends = client.offsets.epoch_ends(epochs) if epochs else {}
    return {name: end.end_offset for name, end in ends.items() if 0 <= end.end_offset < offsets[name]}
