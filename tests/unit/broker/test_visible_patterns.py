"""Subscriptions by pattern (KIP-848) with an authorizer: a member is given what it may know of, and no more."""

from uuid import UUID

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.security.acls import AclOperation, AclResourceType
from tests.unit.broker.guarded_node import World, play

Op, On = AclOperation, AclResourceType
GROUP = "mine"
MEMBER = "member-0000000000000000"


class Member:
    """Bob's only member of a group, and what it is assigned."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epoch = 0
        self._assigned: set[UUID] = set()

    async def topics(self) -> set[str]:
        """After a heartbeat or two."""
        for _ in range(3):
            await self._heartbeat()
        answer = await self._world.call_as("admin", MetadataRequest(topics=None), 12, MetadataResponse)
        return {topic.name or "" for topic in answer.topics if topic.topic_id in self._assigned}

    async def _heartbeat(self) -> None:
        is_first = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=MEMBER,
            member_epoch=self._epoch,
            rebalance_timeout_ms=60_000 if is_first else -1,
            subscribed_topic_regex=".*" if is_first else None,
            topic_partitions=() if is_first else None,
        )
        answer = await self._world.call(request, 1, ConsumerGroupHeartbeatResponse)
        while answer.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            find = FindCoordinatorRequest(coordinator_keys=[GROUP])
            await self._world.call(find, 4, FindCoordinatorResponse)
            answer = await self._world.call(request, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = {topic.topic_id for topic in answer.assignment.topic_partitions}


def test_a_pattern_matches_what_the_member_may_describe() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.GROUP, GROUP)
        await world.allow(Op.DESCRIBE, On.TOPIC, "open")
        assert await Member(world).topics() == {"open"}

    play(scenario)


def test_a_pattern_matches_nothing_for_who_may_describe_nothing() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.GROUP, GROUP)
        assert await Member(world).topics() == set()

    play(scenario)


def test_a_pattern_is_looked_up_again_when_acls_or_topics_change() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.GROUP, GROUP)
        await world.allow(Op.DESCRIBE, On.TOPIC, "open")
        member = Member(world)
        assert await member.topics() == {"open"}

        await world.allow(Op.READ, On.TOPIC, "secret")
        assert await member.topics() == {"open", "secret"}

        await world.allow(Op.DESCRIBE, On.TOPIC, "third")
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("third", "hidden")]
        await world.call_as("admin", CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
        assert await member.topics() == {"open", "secret", "third"}

    play(scenario)
