"""Members that subscribe by a pattern (KIP-848): which of the topics that match they are given."""

import time
from typing import Final
from uuid import UUID

from quorate.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.compat.raw_connection import RawConnection
from tests.compat.security_matrix.conditions import CONDITIONS
from tests.compat.security_matrix.matrix import logged_in
from tests.compat.security_matrix.names import PREFIX
from tests.compat.security_matrix.recording import Outcomes
from tests.compat.security_matrix.world import World

_PATTERN: Final = ".*-here"
_MEMBER: Final = "member-of-the-group-1"
_ASKING: Final = ("super user", "PREFIXED", "DENY", "only READ", "another host", "the host of the ACL")
#: Apache Kafka looks patterns up in the background, and may assign one topic before another.
_SETTLED_AFTER_S: Final = 0.5
_FIRST_WITHIN_S: Final = 20


def subscribe(world: World) -> Outcomes:
    found = {}
    for condition in CONDITIONS:
        if condition.name in _ASKING:
            connection = logged_in(world.target, condition)
            found[condition.name] = _given(world, connection)
            connection.close()
    return {f"topics of {_PATTERN}": found}


def _given(world: World, connection: RawConnection) -> list[str] | int:
    """The names of what the only member of a new group is assigned in the end, or its error."""
    group = world.fresh(PREFIX)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=_MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=_PATTERN,
        topic_partitions=(),
    )
    assigned: set[UUID] = set()
    settled_at = time.monotonic() + _FIRST_WITHIN_S
    while time.monotonic() < settled_at:
        answer = connection.ask(request, 1, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            return answer.error_code
        if answer.assignment is not None:
            now = {topic.topic_id for topic in answer.assignment.topic_partitions}
            if now != assigned:
                assigned, settled_at = now, time.monotonic() + _SETTLED_AFTER_S
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=_MEMBER, member_epoch=answer.member_epoch)
        time.sleep(0.05)
    return sorted(world.name_of(topic_id) or "another topic" for topic_id in assigned)
