"""Proposals on their way to the controller: many in one command, one command at a time, one fate for each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, PartitionIndex, TopicName
from quorate.metadata.core.commands import AlterIsr, Command, IsrMember
from quorate.metadata.core.decisions import Outcomes, PartitionOutcome, PartitionOutcomes
from quorate.metadata.core.image import MetadataImage, TopicIdPartition
from quorate.metadata.store import MetadataStore
from quorate.replication import replication
from quorate.replication.core.leader_events import (
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LeaderEvent,
    ProposeIsr,
)
from quorate.replication.partition import Partition
from quorate.replication.replication import IsrProposals
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import FOLLOWER, LEADER, TOPIC_ID, fail, run, turns

_NAME = TopicName("orders")


class HandStore(MetadataStore):
    """Keeps every command until the test answers it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(MetadataImage())
        self._loop = loop
        self.submitted: list[AlterIsr] = []
        self._futures: list[asyncio.Future[Outcomes]] = []

    async def _carry_out(self, commands: Sequence[Command], *, validate_only: bool) -> Outcomes:
        (command,) = commands
        assert isinstance(command, AlterIsr)
        assert not validate_only
        self.submitted.append(command)
        future: asyncio.Future[Outcomes] = self._loop.create_future()
        self._futures.append(future)
        return await future

    async def is_current(self) -> bool:
        raise AssertionError("nobody is to ask for this")

    async def answer(self, number: int, *errors: ErrorCode) -> None:
        changes = self.submitted[number].changes
        outcomes = tuple(
            PartitionOutcome(topic_id=change.topic_id, topic=_NAME, partition=change.partition, error=error)
            for change, error in zip(changes, errors, strict=True)
        )
        self._futures[number].set_result([PartitionOutcomes(outcomes)])
        await turns()

    async def refuse(self, number: int, error: ErrorCode) -> None:
        self._futures[number].set_result([KafkaError(error)])
        await turns()


class HeardPartition:
    """A partition that only notes what it is told."""

    def __init__(self, index: int) -> None:
        self.identity = TopicIdPartition(TOPIC_ID, _NAME, PartitionIndex(index))
        self.heard: list[LeaderEvent] = []

    def step(self, event: LeaderEvent) -> None:
        self.heard.append(event)


def proposal(number: int = 1) -> ProposeIsr:
    members = (
        IsrMember(node_id=LEADER, broker_epoch=BrokerEpoch(11)),
        IsrMember(node_id=FOLLOWER, broker_epoch=BrokerEpoch(12)),
    )
    return ProposeIsr(number=number, isr=members, leader_epoch=LeaderEpoch(3), partition_epoch=7)


def with_proposals(scenario: Callable[[IsrProposals, HandStore], Awaitable[None]]) -> None:
    async def body(_: World, host: SimulatedHost, __: SimulatedHost) -> None:
        store = HandStore(host.loop)
        proposals = IsrProposals(LEADER, BrokerEpoch(11), store, host.loop, fail)
        await scenario(proposals, store)
        proposals.stop()
        await turns()

    run(body)


def propose(proposals: IsrProposals, partition: HeardPartition, number: int = 1) -> None:
    proposals.propose(cast(Partition, partition), proposal(number))


def test_proposals_of_one_moment_make_one_command_with_their_epochs() -> None:
    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        for index in range(3):
            propose(proposals, HeardPartition(index))
        await turns()
        (command,) = store.submitted
        assert (command.node_id, command.broker_epoch) == (LEADER, 11)
        assert [change.partition for change in command.changes] == [0, 1, 2]
        change = command.changes[0]
        assert (change.leader_epoch, change.partition_epoch) == (3, 7)
        assert [(member.node_id, member.broker_epoch) for member in change.new_isr] == [(LEADER, 11), (FOLLOWER, 12)]

    with_proposals(scenario)


def test_what_is_proposed_meanwhile_goes_with_the_next_command() -> None:
    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        propose(proposals, HeardPartition(0))
        await turns()
        propose(proposals, HeardPartition(1))
        propose(proposals, HeardPartition(2))
        await turns()
        assert len(store.submitted) == 1
        await store.answer(0, ErrorCode.NONE)
        assert [change.partition for change in store.submitted[1].changes] == [1, 2]

    with_proposals(scenario)


def test_a_command_holds_a_bounded_number_of_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "_AT_ONCE", 2)

    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        partitions = [HeardPartition(index) for index in range(3)]
        for partition in partitions:
            propose(proposals, partition)
        await turns()
        await store.answer(0, ErrorCode.NONE, ErrorCode.NONE)
        await store.answer(1, ErrorCode.INELIGIBLE_REPLICA)
        assert [[change.partition for change in command.changes] for command in store.submitted] == [[0, 1], [2]]
        assert [len(partition.heard) for partition in partitions] == [0, 0, 1]

    with_proposals(scenario)


def test_an_accepted_proposal_is_told_by_the_image_and_by_nothing_else() -> None:
    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        partition = HeardPartition(0)
        propose(proposals, partition)
        await turns()
        await store.answer(0, ErrorCode.NONE)
        assert partition.heard == []

    with_proposals(scenario)


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, IsrChangeRefused),
        (ErrorCode.INVALID_REQUEST, IsrChangeRefused),
        (ErrorCode.INVALID_UPDATE_VERSION, IsrChangeOutdated),
        (ErrorCode.FENCED_LEADER_EPOCH, IsrChangeOutdated),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, IsrChangeOutdated),
        (ErrorCode.UNKNOWN_TOPIC_ID, IsrChangeOutdated),
        (ErrorCode.NOT_CONTROLLER, IsrChangeUnanswered),
        (ErrorCode.UNKNOWN_SERVER_ERROR, IsrChangeUnanswered),
    ],
)
def test_each_partition_hears_its_own_fate(error: ErrorCode, fate: Callable[..., LeaderEvent]) -> None:
    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        accepted, other = HeardPartition(0), HeardPartition(1)
        propose(proposals, accepted)
        propose(proposals, other, number=4)
        await turns()
        await store.answer(0, ErrorCode.NONE, error)
        assert accepted.heard == []
        assert other.heard == [fate(proposal=proposal(4))]

    with_proposals(scenario)


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH])
def test_a_command_without_an_answer_leaves_all_of_its_proposals_open(error: ErrorCode) -> None:
    """The controller may have carried it out: such a proposal may still come into force."""

    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        partitions = [HeardPartition(0), HeardPartition(1)]
        for partition in partitions:
            propose(proposals, partition)
        await turns()
        await store.refuse(0, error)
        assert [partition.heard for partition in partitions] == [[IsrChangeUnanswered(proposal=proposal())]] * 2

    with_proposals(scenario)


def test_after_a_failed_command_the_next_one_is_sent() -> None:
    async def scenario(proposals: IsrProposals, store: HandStore) -> None:
        propose(proposals, HeardPartition(0))
        await turns()
        await store.refuse(0, ErrorCode.REQUEST_TIMED_OUT)
        propose(proposals, HeardPartition(0), number=2)
        await turns()
        assert len(store.submitted) == 2

    with_proposals(scenario)
