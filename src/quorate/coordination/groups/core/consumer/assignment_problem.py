"""What an assignor is given: who subscribes to what, and who had what before."""

from collections.abc import Mapping

import msgspec

from quorate.coordination.groups.core.consumer.partitions import Partitions
from quorate.kernel.ids import MemberId, TopicId


class AssignmentProblem(msgspec.Struct, frozen=True, kw_only=True):
    #: The topics that exist, for each member. Members are in the order in which assignors consider them.
    subscriptions: Mapping[MemberId, frozenset[TopicId]]
    partition_counts: Mapping[TopicId, int]
    previous: Mapping[MemberId, Partitions] = {}

    def subscribers(self) -> dict[TopicId, list[MemberId]]:
        """Who subscribes to each topic; topics by id, members in their order."""
        found: dict[TopicId, list[MemberId]] = {}
        for member_id, topics in self.subscriptions.items():
            for topic_id in topics:
                found.setdefault(topic_id, []).append(member_id)
        return dict(sorted(found.items()))
