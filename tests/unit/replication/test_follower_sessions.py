"""The leader's side: what followers have asked for, and when they are answered."""

import asyncio
from uuid import UUID

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset
from quorate.replication import follower_sessions
from quorate.replication.core.messages import (
    FetchPosition,
    ReplicaFetch,
    ReplicaFetchAnswer,
    decode_answer,
    encode_fetch,
)
from quorate.replication.follower_sessions import FollowerSessions
from quorate.transport.peers.channels import Sender
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import (
    BROKER_EPOCHS,
    FOLLOWER,
    LEADER,
    THIRD,
    TOPIC_ID,
    Replicas,
    follow,
    lead,
    run,
    turns,
    write,
)


class Asking:
    """Followers that send requests to one leader by hand."""

    def __init__(self, world: World, host: SimulatedHost) -> None:
        self.world = world
        self.replicas = Replicas(host)
        self.sessions = FollowerSessions(host.loop, self.replicas.find_led)
        self._loop = host.loop

    def send(
        self, *asks: FetchPosition, session: int = 1, follower: NodeId = FOLLOWER, broker_epoch: int | None = None
    ) -> "asyncio.Task[ReplicaFetchAnswer]":
        epoch = BROKER_EPOCHS[follower] if broker_epoch is None else broker_epoch
        return self._loop.create_task(self._send(follower, ReplicaFetch(session, epoch, list(asks))))

    async def _send(self, follower: NodeId, request: ReplicaFetch) -> ReplicaFetchAnswer:
        return decode_answer(
            b"".join(await self.sessions.fetch(Sender(follower, is_known=True), encode_fetch(request)))
        )


def ask(offset: int, *, epoch: int = 1, last_epoch: int = -1, known: int = 0, index: int = 0) -> FetchPosition:
    return FetchPosition(
        TOPIC_ID, index, LeaderEpoch(epoch), Offset(offset), LeaderEpoch(last_epoch), Offset(known), Offset(0)
    )


def test_a_request_waits_until_there_are_records_and_gets_them_beyond_the_watermark() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        request = asking.send(ask(0))
        await turns()
        assert not request.done()
        write(partition, b"x")
        (fetched,) = (await request).partitions
        assert (fetched.fetch, fetched.error, fetched.high_watermark) == (ask(0), ErrorCode.NONE, 0)
        assert len(fetched.records) > 0

    run(scenario)


def test_a_partition_that_was_answered_is_silent_until_it_is_asked_for_again() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        write(partition, b"x")
        await asking.send(ask(0))
        request = asking.send()
        write(partition, b"y")
        await turns()
        assert not request.done()
        again = asking.send(ask(1, last_epoch=1))
        assert [fetched.fetch for fetched in (await again).partitions] == [ask(1, last_epoch=1)]

    run(scenario)


def test_the_fetch_counts_when_it_arrives_and_not_when_it_is_answered() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        write(partition, b"x")
        await world.sleep(0.01)
        assert partition.high_watermark == 0
        request = asking.send(ask(1, last_epoch=1))
        await turns(1)
        assert partition.high_watermark == 1
        request.cancel()

    run(scenario)


def test_a_watermark_alone_is_told_after_a_moment_in_which_records_may_take_it_along() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        write(partition, b"x")
        await world.sleep(0.01)
        request = asking.send(ask(1, last_epoch=1))
        await turns(10)
        assert not request.done()
        await world.sleep(0.015)
        (fetched,) = request.result().partitions
        assert (fetched.high_watermark, len(fetched.records)) == (1, 0)

    run(scenario)


def test_a_follower_that_knows_a_higher_watermark_than_its_new_leader_is_left_in_peace() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1, isr=(LEADER, FOLLOWER, THIRD))
        write(partition, b"x")
        await world.sleep(0.01)
        request = asking.send(ask(1, last_epoch=1, known=1))
        await world.sleep(0.1)
        assert not request.done()

    run(scenario)


def test_a_newer_request_ends_the_wait_of_the_older_one() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        first, second = asking.replicas.open(0), asking.replicas.open(1)
        lead(first, 1)
        lead(second, 1)
        older = asking.send(ask(0))
        await turns()
        newer = asking.send(ask(0, index=1))
        assert (await older).partitions == []
        write(first, b"x")
        assert [fetched.fetch.partition for fetched in (await newer).partitions] == [0]

    run(scenario)


def test_silence_ends_after_a_while_as_a_sign_of_life() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        lead(asking.replicas.open(), 1)
        request = asking.send(ask(0))
        await world.sleep(5)
        assert request.result() == ReplicaFetchAnswer(True, [])

    run(scenario)


def test_another_session_of_the_follower_ends_the_one_before() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        older = asking.send(ask(0), session=1)
        await turns()
        newer = asking.send(session=2)
        assert (await older).is_known is False
        write(partition, b"x")
        await turns()
        assert not newer.done()  # It has not asked for anything.

    run(scenario)


def test_followers_do_not_end_each_others_sessions() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        one, other = asking.send(ask(0), session=1), asking.send(ask(0), session=2, follower=THIRD)
        await turns()
        write(partition, b"x")
        assert len((await one).partitions) == len((await other).partitions) == 1

    run(scenario)


def test_a_deposed_leader_tells_those_who_have_asked() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        request = asking.send(ask(0))
        await turns()
        follow(partition, 2, FOLLOWER)
        asking.sessions.leadership_changed(partition)
        (fetched,) = (await request).partitions
        assert fetched.error == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_what_was_asked_of_an_earlier_reign_does_not_count_in_a_later_one() -> None:
    """Between the two the follower may have been another's, and have another log."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1, isr=(LEADER,))
        request = asking.send(ask(0))
        await turns()
        lead(partition, 3, isr=(LEADER,), partition_epoch=3)
        asking.sessions.leadership_changed(partition)
        asking.replicas.port.proposals.clear()
        asking.sessions.refresh(partition, 60_000)
        assert asking.replicas.port.proposals == []
        assert [fetched.error for fetched in (await request).partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(scenario)


def test_a_follower_that_waits_out_of_sync_is_proposed_when_time_passes() -> None:
    """It has everything and so nothing more to ask: its broker was fenced when it asked."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1, isr=(LEADER,))
        asking.send(ask(0), broker_epoch=BROKER_EPOCHS[FOLLOWER])
        await turns()
        asking.replicas.port.proposals.clear()
        asking.sessions.refresh(partition, 1_000)
        assert asking.replicas.port.proposals == []  # One proposal is on its way already.
        asking.send(ask(0), follower=THIRD, session=9, broker_epoch=1)
        await turns()
        asking.sessions.refresh(partition, 2_000)
        assert asking.replicas.port.proposals == []  # The voice of a life that has ended.

    run(scenario)


def test_refusals_name_their_reason_and_concern_their_partition_alone() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        lead(asking.replicas.open(0), 2)
        follow(asking.replicas.open(1), 2, FOLLOWER)
        stranger = msgspec.structs.replace(ask(0, epoch=2), topic_id=UUID(int=9))
        request = asking.send(ask(0, epoch=1), ask(0, index=1, epoch=2), stranger, ask(0, epoch=3), session=1)
        codes = [fetched.error for fetched in (await request).partitions]
        assert codes == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]

    run(scenario)


def test_a_follower_that_has_gone_another_way_is_told_where_to_cut_and_does_not_count() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        write(partition, b"x")
        lead(partition, 5, partition_epoch=2)
        await world.sleep(0.01)
        (fetched,) = (await asking.send(ask(1, epoch=5, last_epoch=3))).partitions
        assert fetched.diverging_epoch == EpochEnd(leader_epoch=LeaderEpoch(1), end_offset=Offset(1))
        assert partition.high_watermark == 0

    run(scenario)


def test_a_large_backlog_comes_in_several_answers() -> None:
    async def scenario(world: World, host: SimulatedHost, __: SimulatedHost) -> None:
        asking = Asking(world, host)
        partitions = [asking.replicas.open(index) for index in range(12)]
        for partition in partitions:
            lead(partition, 1)
            write(partition, b"x" * 900_000)
        seen: list[int] = []
        answer = await asking.send(*(ask(0, index=index) for index in range(12)))
        while answer.partitions:
            seen += [fetched.fetch.partition for fetched in answer.partitions]
            if len(seen) == 12:
                break
            answer = await asking.send()
        assert sorted(seen) == list(range(12))
        assert len(seen) > len(answer.partitions)

    run(scenario)


def test_deleted_records_are_told_to_those_who_wait() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1)
        write(partition, b"x")
        await world.sleep(0.01)
        request = asking.send(ask(1, last_epoch=1, known=1))
        await turns()
        partition.delete_records_before(partition.high_watermark)
        assert [fetched.log_start_offset for fetched in (await request).partitions] == [1]

    run(scenario)


def test_deleted_records_are_told_to_a_follower_that_was_busy_when_they_went() -> None:
    """It would bring them back as the next leader."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        asking = Asking(world, host)
        partition = asking.replicas.open()
        lead(partition, 1, isr=(LEADER,))
        write(partition, b"x")
        await world.sleep(0.01)
        partition.delete_records_before(partition.high_watermark)
        answer = await asking.send(ask(1, last_epoch=1, known=1))
        assert [fetched.log_start_offset for fetched in answer.partitions] == [1]

    run(scenario)


def test_an_answer_is_about_a_bounded_number_of_partitions_and_the_rest_comes_with_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_sessions, "_ANSWER_MAX_PARTITIONS", 2)

    async def scenario(world: World, host: SimulatedHost, __: SimulatedHost) -> None:
        asking = Asking(world, host)
        partitions = [asking.replicas.open(index) for index in range(5)]
        for partition in partitions:
            lead(partition, 1)
            write(partition, b"x")
        request = asking.send(*(ask(0, index=index) for index in range(5)), *(ask(0, index=7 + i) for i in range(3)))
        told = []
        for _ in range(4):
            fetched = (await request).partitions
            assert len(fetched) == 2
            told += [(one.fetch.partition, one.error, len(one.records) > 0) for one in fetched]
            request = asking.send()
        refused = [(7 + i, ErrorCode.UNKNOWN_TOPIC_ID, False) for i in range(3)]
        assert sorted(told) == [*((index, ErrorCode.NONE, True) for index in range(5)), *refused]
        await turns()
        assert not request.done()

    run(scenario)
