"""The stream that Spark sees: micro-batches over a live cluster. Does I/O.

Spark's checkpoint is the only memory: every question is answered from the position that it hands in and from what the
cluster says now.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from quorate.backup.spark.data_source.live_planning import LivePartition, look_at, pack_tasks, wanted_offsets
from quorate.backup.spark.data_source.live_reading import DataLoss
from quorate.backup.spark.data_source.options import SourceOptions
from quorate.backup.spark.data_source.source import read_task
from quorate.backup.spark.data_source.stream_position import (
    PartitionPosition,
    StreamPosition,
    TopicPosition,
    advance,
    decode_position,
    encode_position,
    find_loss,
    missing_partitions,
    spans_between,
)
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicPartition
from quorate.records.columnar import INT64_MAX

if TYPE_CHECKING:
    import pyarrow


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
    """Where logs were cut back below what was read of them: asked only where the leader epoch is another by now."""
    epochs: dict[TopicPartition, LeaderEpoch] = {}
    offsets: dict[TopicPartition, Offset] = {}
    for each in partitions:
        topic = position.get(each.name.topic)
        known = None if topic is None else topic.partitions.get(each.name.partition)
        if known is not None and 0 <= known.leader_epoch != each.end_epoch:
            epochs[each.name], offsets[each.name] = known.leader_epoch, known.offset
    ends = client.offsets.epoch_ends(epochs) if epochs else {}
    return {name: end.end_offset for name, end in ends.items() if 0 <= end.end_offset < offsets[name]}
