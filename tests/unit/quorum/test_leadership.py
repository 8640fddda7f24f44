import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.ids import NO_NODE, DirectoryId, NodeId, PartitionIndex, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import encode_commands
from quorate.metadata.core.image import PartitionState
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.membership import Member
from quorate.quorum.errors import NotQuorumLeader
from tests.simulation.world.world import World
from tests.unit.quorum.leading_node import SESSION_TIMEOUT_S, LeadingNode
from tests.unit.quorum.quorum_disk import new_disk

TOPIC = TopicName("topic")


def run(scenario: Callable[[LeadingNode], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        node = LeadingNode(new_disk())
        await node.start()
        await scenario(node)
        await node.stop()

    with World(1) as world:
        world.run(whole())


async def create(node: LeadingNode, *replicas: int, unclean: bool = False) -> None:
    configs = {"unclean.leader.election.enable": "true"} if unclean else {}
    assignments = {PartitionIndex(0): tuple(NodeId(replica) for replica in replicas)}
    await node.store.submit_one(c.CreateTopic(name=TOPIC, assignments=assignments, configs=configs))


def partition(node: LeadingNode) -> PartitionState:
    return node.store.image.topics[TOPIC].partitions[PartitionIndex(0)]


def test_the_first_leader_gives_the_cluster_its_id() -> None:
    async def scenario(node: LeadingNode) -> None:
        assert node.store.image.cluster_id == "cluster"

    run(scenario)


def test_a_broker_is_unfenced_only_when_it_has_seen_its_own_registration() -> None:
    async def scenario(node: LeadingNode) -> None:
        before = node.store.image.version
        await node.register(2)
        await node.beat(2, version=before)
        assert node.live() == []
        await node.beat(2)
        assert node.live() == [2]

    run(scenario)


def test_brokers_that_register_in_one_batch_do_not_need_each_other_to_be_unfenced() -> None:
    async def scenario(node: LeadingNode) -> None:
        commands = [
            c.RegisterBroker(node_id=NodeId(i), host="h", port=1, incarnation=node.new_uuid()) for i in (2, 3, 4)
        ]
        await node.store.submit(commands)
        await node.beat(4)
        assert node.live() == [4]

    run(scenario)


def test_a_broker_that_falls_silent_is_fenced_when_its_session_ends() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        await node.pass_time(SESSION_TIMEOUT_S / 2)
        await node.beat(3)
        await node.pass_time(SESSION_TIMEOUT_S / 2 - 0.1)
        assert node.live() == [2, 3]
        await node.pass_time(0.2)
        assert node.live() == [3]

    run(scenario)


def test_a_fenced_broker_that_beats_again_is_unfenced_and_has_a_session_again() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        await node.pass_time(SESSION_TIMEOUT_S + 0.1)
        assert node.live() == []
        await node.beat(2)
        assert node.live() == [2]
        await node.pass_time(SESSION_TIMEOUT_S - 0.1)
        assert node.live() == [2]
        await node.pass_time(0.2)
        assert node.live() == []

    run(scenario)


def test_a_broker_whose_process_is_gone_is_fenced_at_once_and_others_lead() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        await create(node, 2, 3)
        assert partition(node).leader == 2
        node.leadership.broker_died(NodeId(2))
        await node.pass_time(0.001)
        assert node.live() == [3]
        assert partition(node).leader == 3

    run(scenario)


def test_a_broker_that_died_before_it_was_unfenced_keeps_no_partition_waiting() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        await create(node, 2, 3, unclean=True)
        node.leadership.broker_died(NodeId(3))
        await node.pass_time(0.001)
        await node.beat(3)
        await node.register(2)  # The last in sync has started anew: the partition waits for it, and then it is gone.
        assert partition(node).leader == NO_NODE
        for _ in range(3):
            await node.pass_time(SESSION_TIMEOUT_S / 2)
            await node.beat(3)
        assert partition(node).leader == 3

    run(scenario)


def test_a_new_leader_gives_every_broker_a_whole_session() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        await node.pass_time(SESSION_TIMEOUT_S - 1)
        node.lose_and_regain_leadership()
        await node.pass_time(SESSION_TIMEOUT_S - 1)
        assert node.live() == [2]
        await node.pass_time(1.1)
        assert node.live() == []

    run(scenario)


def test_a_new_leader_fences_a_predecessor_at_once_that_has_been_silent_for_longer_than_a_session() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        node.lose_and_regain_leadership(from_silent=2, silent_for_s=3 * SESSION_TIMEOUT_S)
        await node.pass_time(0.1)
        assert node.live() == [3]
        await node.pass_time(SESSION_TIMEOUT_S)
        assert node.live() == []

    run(scenario)


def test_a_new_leader_fences_at_once_whose_process_is_gone() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        node.neighbours.refusing = {2}
        node.lose_and_regain_leadership()
        await node.pass_time(0.001)
        assert node.live() == [3]

    run(scenario)


def test_a_node_that_does_not_lead_fences_nobody_and_says_who_leads() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        node.leadership.end()
        node.leadership.broker_died(NodeId(2))
        await node.pass_time(2 * SESSION_TIMEOUT_S)
        assert node.live() == [2]
        with pytest.raises(NotQuorumLeader) as refusal:
            await node.beat(2)
        assert refusal.value.leader == node.driver.state.leader

    run(scenario)


def test_the_leader_never_takes_its_own_process_for_gone() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(1)
        node.leadership.broker_died(NodeId(1))
        await node.pass_time(0.001)
        assert node.live() == [1]

    run(scenario)


def test_the_leader_hears_its_own_broker_out_when_its_loop_is_slow() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(1, 2)
        for _ in range(2):
            await node.pass_time(SESSION_TIMEOUT_S + 0.2)
            assert node.live() == [1], "its heartbeat may be a few turns of the loop away"
            await node.beat(1)
        await node.pass_time(SESSION_TIMEOUT_S + 2)
        assert node.live() == [], "it has stopped beating"

    run(scenario)


def test_a_heartbeat_of_an_earlier_start_is_told_so_and_keeps_nobody_alive() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        old = node.broker(2).broker_epoch
        await node.register(2)
        assert (await node.beat(2, epoch=old)).is_superseded
        assert node.live() == []

    run(scenario)


def test_a_broker_may_stop_once_others_lead_what_it_led() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        await create(node, 2, 3)
        assert (await node.beat(2, wants_to_stop=True)).may_stop
        assert partition(node).leader == 3
        assert not node.broker(2).is_active

    run(scenario)


def test_a_broker_that_alone_has_the_data_may_not_stop_yet() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2, 3)
        await create(node, 2)
        assert not (await node.beat(2, wants_to_stop=True)).may_stop
        assert partition(node).leader == 2

    run(scenario)


def test_a_leader_that_loses_the_quorum_lets_no_broker_stop() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        node.executor.is_held = True
        early = asyncio.ensure_future(node.beat(2, wants_to_stop=True))
        await node.pass_time(0.01)
        late = asyncio.ensure_future(node.beat(2, wants_to_stop=True))
        await node.pass_time(0.01)
        node.leadership.end()
        with pytest.raises(NotQuorumLeader):
            await late
        node.executor.is_held = False
        node.executor.work()
        assert (await early).may_stop  # This one was agreed on.

    run(scenario)


def test_a_broker_that_is_gone_while_it_is_unregistered_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        node.executor.is_held = True
        unregistering = asyncio.ensure_future(node.store.submit_one(c.UnregisterBroker(node_id=NodeId(2))))
        await node.pass_time(0.01)
        node.leadership.broker_died(NodeId(2))
        await node.pass_time(0.01)
        node.executor.is_held = False
        node.executor.work()
        await unregistering
        await node.pass_time(0.01)
        assert NodeId(2) not in node.store.image.brokers

    run(scenario)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_leader_that_may_have_been_deposed_dismisses_nobody() -> None:
    async def scenario(node: LeadingNode) -> None:
        assert (await node.beat(9, epoch=1)).is_removed
        await node.driver.stop()  # As if the quorum did not answer: it may know of the broker by now.
        with pytest.raises(NotQuorumLeader):
            await node.beat(9, epoch=1)

    run(scenario)


def test_a_broker_follows_the_log_from_its_registration_on_where_it_says_it_is() -> None:
    async def scenario(node: LeadingNode) -> None:
        for address in ("host:1", "host:1", "host:2"):
            await node.register(5, address)
            await node.pass_time(0.01)
            assert node.driver.membership.member(NodeId(5)) == Member(NodeId(5), address, is_voter=False)

    run(scenario)


def test_the_membership_names_the_data_folder_of_every_broker_and_takes_no_other_for_it() -> None:
    async def scenario(node: LeadingNode) -> None:
        folders = [DirectoryId(UUID(int=number)) for number in range(3)]
        for node_id in (1, 5):  # A voter, and one that joins.
            await node.register(node_id, f"host:{node_id}", folders[1])
            await node.pass_time(0.01)
            member = node.driver.membership.member(NodeId(node_id))
            assert member == Member(NodeId(node_id), f"host:{node_id}", node_id == 1, folders[1])

        await node.store.submit_one(c.UnregisterBroker(node_id=NodeId(1)))
        await node.register(1, "host:1", folders[2])
        await node.pass_time(0.01)

        member = node.driver.membership.member(NodeId(1))
        assert member is not None
        assert member.directory_id == folders[1], "a voter lost its votes and is still counted"

    run(scenario)


def test_a_new_leader_takes_in_a_broker_that_its_predecessor_did_not_get_to() -> None:
    async def scenario(node: LeadingNode) -> None:
        node.store.subscribe(lambda image, delta: node.leadership.end())  # As soon as the broker is known.
        await node.register(5, "host:1")
        await node.pass_time(0.01)
        assert node.driver.membership.member(NodeId(5)) is None

        node.lose_and_regain_leadership()
        await node.pass_time(0.01)

        assert node.driver.membership.member(NodeId(5)) is not None

    run(scenario)


def test_a_broker_leaves_the_quorum_only_when_it_is_unregistered() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.register(5, "host:5")
        await node.register(6, "host:6")
        await node.pass_time(0.01)
        assert await node.leadership.answer(q.Remove(node_id=NodeId(5))) == q.ChangeRefused(reason="not a voter")
        assert sorted(node.driver.membership.node_ids) == [1, 5, 6]

        await node.store.submit_one(c.UnregisterBroker(node_id=NodeId(5)))
        await node.pass_time(0.01)

        assert sorted(node.driver.membership.node_ids) == [1, 6]
        assert await node.leadership.answer(q.Remove(node_id=NodeId(5))) == q.ChangeRefused(reason="not a member")

    run(scenario)


def test_a_change_of_the_membership_that_cannot_be_made_is_refused_with_a_reason() -> None:
    async def scenario(node: LeadingNode) -> None:
        answer = await node.leadership.answer(q.Promote(node_id=NodeId(9)))
        assert isinstance(answer, q.ChangeRefused)
        assert answer.reason

    run(scenario)


def test_commands_are_answered_with_the_version_that_shows_them() -> None:
    async def scenario(node: LeadingNode) -> None:
        await node.bring_up(2)
        commands = encode_commands([c.CreateTopic(name="a", replication_factor=1)])
        answer = await node.leadership.answer(q.Submit(commands=commands, validate_only=False))
        assert isinstance(answer, q.Submitted)
        assert "a" in node.store.image.topics

    run(scenario)
