"""Asks, when all is copied, whether the logs are still those whose ends were captured. Does I/O.

Whoever fetches a range makes sure that all of it is of one history (KIP-320). The ranges of one partition are fetched
at different times: an unclean election in between may have left some of them from before it, and some from after it.
"""

from collections.abc import Mapping
from typing import Protocol

from quorate.backup.manifests.manifest import Failure
from quorate.backup.planning.planner import PartitionPlan, Plan
from quorate.client.offsets import EpochEnd
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import LeaderEpoch, TopicPartition


class AsksForEpochs(Protocol):
    def try_epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> Mapping[TopicPartition, EpochEnd | QuorateError]: ...


def truncated_meanwhile(offsets: AsksForEpochs, plan: Plan) -> list[Failure]:
    """The partitions that were copied from two histories. The next run finds where they part, and copies the rest."""
    copied = copied_in_parts(plan)
    ends = offsets.try_epoch_ends({name: each.captured_leader_epoch for name, each in copied.items()})
    return [
        Failure(
            topic=name.topic,
            partition=name.partition,
            message=f"{name} was truncated to offset {end.end_offset} while it was copied: run the backup again",
        )
        for name, end in ends.items()
        if isinstance(end, EpochEnd) and 0 <= end.end_offset < copied[name].captured_end_offset
    ]


def copied_in_parts(plan: Plan) -> dict[TopicPartition, PartitionPlan]:
    return {
        TopicPartition(topic.name, each.partition): each
        for topic in plan.topics
        for each in topic.partitions
        if len(each.ranges) > 1 and each.captured_leader_epoch >= 0
    }
