"""A partition that was copied in parts from two histories is a failure of the run, and nothing else is."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from quorate.backup.manifests.manifest import Mode
from quorate.backup.planning.cluster_snapshot import ClusterSnapshot, PartitionSnapshot, TopicSelection, TopicSnapshot
from quorate.backup.planning.planner import Plan, PlannerSettings, plan_run
from quorate.backup.spark.copy.cluster_capture import truncated_meanwhile
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName, TopicPartition

TOPIC = TopicName("orders")
END = 1_000
EPOCH = 5


def plan(log_bytes: int, epoch: int = EPOCH) -> Plan:
    partition = PartitionSnapshot(
        partition=PartitionIndex(0),
        leader=NodeId(7),
        leader_epoch=LeaderEpoch(epoch),
        log_start_offset=Offset(0),
        end_offset=Offset(END),
        end_epoch=LeaderEpoch(epoch),
        log_bytes=log_bytes,
    )
    topic = TopicSnapshot(name=TOPIC, topic_id=TopicId(UUID(int=1)), partitions=(partition,))
    cluster = ClusterSnapshot(cluster_id="c", captured_ms=1, topics=(topic,))
    return plan_run(cluster, None, TopicSelection(), Mode.SNAPSHOT, PlannerSettings(range_bytes=100))


class Leaders:
    """Answer with one end for every epoch, and keep what they were asked."""

    def __init__(self, answer: EpochEnd | QuorateError) -> None:
        self._answer = answer
        self.asked: dict[TopicPartition, LeaderEpoch] = {}

    def try_epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> Mapping[TopicPartition, EpochEnd | QuorateError]:
        self.asked.update(epochs)
        return dict.fromkeys(epochs, self._answer)


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(leader_epoch=LeaderEpoch(epoch), end_offset=Offset(offset))


def test_log_that_was_cut_between_two_ranges_is_a_failure() -> None:
    leaders = Leaders(end(4, 300))

    (failure,) = truncated_meanwhile(leaders, plan(log_bytes=400))

    assert leaders.asked == {TopicPartition(TOPIC, PartitionIndex(0)): EPOCH}
    assert (failure.topic, failure.partition) == (TOPIC, 0)
    assert failure.message == "orders-0 was truncated to offset 300 while it was copied: run the backup again"


@pytest.mark.parametrize(
    "answer",
    [end(EPOCH, END), end(EPOCH, END + 9), end(-1, -1), QuorateError("no leader")],
    ids=["nothing new", "a longer log", "no answer about epochs", "nobody answers"],
)
def test_log_that_still_has_what_was_captured_is_none(answer: EpochEnd | QuorateError) -> None:
    assert truncated_meanwhile(Leaders(answer), plan(log_bytes=400)) == []


@pytest.mark.parametrize(("log_bytes", "epoch"), [(90, EPOCH), (400, -1)], ids=["one range", "no epochs"])
def test_who_has_nothing_to_tell_is_not_asked(log_bytes: int, epoch: int) -> None:
    leaders = Leaders(end(4, 300))

    assert truncated_meanwhile(leaders, plan(log_bytes, epoch)) == []
    assert leaders.asked == {}
