"""How far a stream has come, as Spark keeps it in its checkpoint, and where it goes on.

A position names each topic's id and each partition's leader epoch beside its offset: an offset alone does not tell that
a topic was deleted and created again, or that a log was cut back and written anew.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from quorate.backup.spark.data_source.live_planning import LivePartition
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition


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
    return msgspec.convert(raw, StreamPosition, strict=False)


def find_loss(
    start: StreamPosition, partition: LivePartition, diverging: Mapping[TopicPartition, Offset]
) -> Loss | None:
    """``diverging`` has the partitions whose log was cut back since, and where to."""
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
    """The end of the next batch. ``begins`` says where partitions go on that do not go on where they were."""
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
