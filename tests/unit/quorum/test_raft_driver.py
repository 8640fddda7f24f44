import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import Offset, Term
from quorate.quorum.core import messages as m
from quorate.quorum.core.entries import Entry, EntryKind, InvariantBroken, Snapshot, SnapshotMeta
from quorate.quorum.core.membership import encode_membership
from quorate.quorum.errors import NotQuorumLeader
from quorate.transport.peers.errors import OutcomeUnknown
from tests.simulation.disk import SimulatedDisk
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import ME, OTHER, DrivenNode, until
from tests.unit.quorum.quorum_disk import MEMBERSHIP, entry, new_disk


def run(scenario: Callable[[SimulatedDisk], Coroutine[Any, Any, None]]) -> None:
    """In virtual time."""
    with World(1) as world:
        world.run(scenario(new_disk()))


def test_an_entry_is_durable_before_it_is_acknowledged_and_applied_after_it_is_committed() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.executor.is_held = True
        node.driver.start()
        node.follow(entry(0, 1), term=1, high_watermark=1)
        await node.settle()
        assert node.journal == []
        node.executor.work()
        await node.settle()
        assert node.journal == ["durable [0]", "sent AppendAccepted", "applied [0]"]

    run(scenario)


def test_a_membership_is_told_of_when_it_is_in_the_log_and_not_only_when_it_is_committed() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        node.follow(Entry(Offset(0), Term(1), EntryKind.MEMBERSHIP, encode_membership(MEMBERSHIP)), term=1)
        await node.settle()
        assert node.memberships == [MEMBERSHIP]

    run(scenario)


def test_a_leader_offers_entries_while_its_own_disk_is_still_at_work() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        await node.win_election()
        node.journal.clear()
        node.executor.is_held = True
        proposing = asyncio.ensure_future(node.driver.propose(b"x", node.term))
        await node.settle()
        assert "sent AppendRequest" in node.journal
        assert set(node.journal) == {"sent AppendRequest"}
        assert not proposing.done()
        node.executor.is_held = False
        node.executor.work()
        node.accept(2)
        assert await proposing == Offset(1)
        assert node.payloads.applied == [b"x"]

    run(scenario)


def test_what_comes_while_the_disk_is_at_work_is_written_together() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        node.executor.is_held = True
        asking = [asyncio.ensure_future(node.driver.propose(b"%d" % i, node.term)) for i in range(4)]
        await asyncio.sleep(0)
        await node.settle()
        late = [asyncio.ensure_future(node.driver.propose(b"late", node.term)) for _ in range(2)]
        await node.settle()
        assert len(node.executor.waiting) == 1
        node.executor.is_held = False
        node.executor.work()
        assert await asyncio.gather(*asking, *late) == [1, 2, 3, 4, 5, 6]
        assert [line for line in node.journal if line.startswith("durable")][-2:] == [
            "durable [1, 2, 3, 4]",
            "durable [5, 6]",
        ]

    run(scenario)


def test_a_proposal_decided_in_an_earlier_term_is_refused() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        with pytest.raises(NotQuorumLeader):
            await node.driver.propose(b"x", Term(node.term - 1))
        assert node.payloads.applied == []

    run(scenario)


def test_an_asker_that_goes_away_does_not_take_its_proposal_back() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        node.executor.is_held = True
        asking = asyncio.ensure_future(node.driver.propose(b"x", node.term))
        await node.settle()
        asking.cancel()
        await node.settle()
        node.executor.is_held = False
        node.executor.work()
        assert await node.driver.propose(b"y", node.term) == Offset(2)
        assert node.payloads.applied == [b"x", b"y"]

    run(scenario)


def test_a_failing_disk_stops_the_node_and_answers_nobody() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        await node.win_election()
        disk.syncs_fail = True
        asking = asyncio.ensure_future(node.driver.propose(b"x", node.term))
        await node.settle()
        (failure,) = node.failures
        assert isinstance(failure, KafkaError | OSError)
        assert not asking.done()
        node.sent.clear()
        node.journal.clear()
        node.accept(2)
        await until(asyncio.get_running_loop().time() + 5)
        assert (node.sent, node.journal, node.payloads.applied) == ([], [], [])
        with pytest.raises(NotQuorumLeader):
            await node.driver.propose(b"y", node.term)
        await node.driver.stop()
        with pytest.raises(OutcomeUnknown):
            await asking

    run(scenario)


def test_a_follower_whose_disk_fails_acknowledges_nothing() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        disk.syncs_fail = True
        node.follow(entry(0, 1), term=1, high_watermark=1)
        await node.settle()
        assert len(node.failures) == 1
        assert (node.sent, node.payloads.applied) == ([], [])

    run(scenario)


def test_a_broken_invariant_stops_the_node_but_not_before_the_disk_has_rest() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        node.follow(entry(0, 1), term=1, high_watermark=1)
        await node.settle()
        node.executor.is_held = True
        node.follow(entry(1, 1), term=1, previous_term=1, base=1)
        await node.settle()
        node.follow(entry(7, 1), term=1, previous_term=1, base=2)  # With a hole, which no leader sends.
        await node.settle()
        assert [type(failure) for failure in node.failures] == [InvariantBroken]
        stopping = asyncio.ensure_future(node.driver.stop())
        await node.settle()
        assert not stopping.done()
        node.sent.clear()
        node.executor.work()
        await stopping
        assert node.sent == []

    run(scenario)


def test_a_core_that_breaks_while_it_collects_its_work_stops_the_node() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        node.raft.is_broken = True
        asking = asyncio.ensure_future(node.driver.propose(b"x", node.term))
        await node.settle()
        assert len(node.failures) == 1
        await node.driver.stop()
        with pytest.raises(OutcomeUnknown):
            await asking

    run(scenario)


def test_a_stop_waits_for_the_disk_and_sends_nothing_more() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        node.executor.is_held = True
        node.follow(entry(0, 1), term=1, high_watermark=1)
        await node.settle()
        stops = [asyncio.ensure_future(node.driver.stop()) for _ in range(2)]
        await node.settle()
        assert not any(stop.done() for stop in stops)
        node.executor.work()
        await asyncio.gather(*stops)
        assert node.journal == ["durable [0]"]
        assert node.failures == []

    run(scenario)


def test_a_stop_wakes_those_who_wait_with_an_unknown_outcome() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.driver.start()
        await node.win_election()
        asking = asyncio.ensure_future(node.driver.propose(b"x", node.term))
        await node.settle()
        await node.driver.stop()
        with pytest.raises(OutcomeUnknown):
            await asking
        ticks = node.raft.ticks
        await until(asyncio.get_running_loop().time() + 5)
        assert node.raft.ticks == ticks

    run(scenario)


def test_a_node_that_is_alone_never_wakes_by_itself() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        ticks = node.raft.ticks
        await until(asyncio.get_running_loop().time() + 60)
        assert node.raft.ticks == ticks

    run(scenario)


def test_an_idle_leader_wakes_only_for_its_heartbeats() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3)
        node.answers_heartbeats = True
        node.driver.start()
        await node.win_election()
        node.sent.clear()
        ticks = node.raft.ticks
        await until(asyncio.get_running_loop().time() + 15)
        assert node.driver.state.can_decide
        rounds = sum(isinstance(message, m.Heartbeat) and message.receiver == OTHER for message in node.sent)
        assert 95 <= rounds <= 101
        assert node.raft.ticks - ticks <= rounds + 15  # A check of the quorum now and then.

    run(scenario)


def test_snapshots_are_taken_as_entries_come_and_a_restart_goes_on_from_the_last() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, entries_between_snapshots=5)
        await node.lead_alone()
        for number in range(12):
            await node.driver.propose(b"%d" % number, node.term)
        await node.settle()
        assert [line for line in node.journal if line.startswith("snapshot")] == ["snapshot 5", "snapshot 10"]
        await node.driver.stop()
        disk.crash()
        again = DrivenNode(disk, entries_between_snapshots=5)
        assert again.payloads.applied == [b"%d" % number for number in range(9)]
        await again.lead_alone()
        assert again.payloads.applied == [b"%d" % number for number in range(12)]
        assert await again.driver.propose(b"12", again.term) == Offset(14)

    run(scenario)


def test_a_disk_that_fails_under_a_snapshot_stops_the_node() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, entries_between_snapshots=3)
        await node.lead_alone()
        await node.driver.propose(b"0", node.term)
        node.executor.is_held = True
        asking = asyncio.ensure_future(node.driver.propose(b"1", node.term))
        await node.settle()
        node.executor.work()
        assert await asking == Offset(2)
        await node.settle()
        disk.syncs_fail = True
        node.executor.work()
        await node.settle()
        assert len(node.failures) == 1
        await node.driver.stop()

    run(scenario)


def test_a_snapshot_of_the_leader_that_comes_when_an_own_one_is_due_takes_its_place() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, voters=3, entries_between_snapshots=3)
        node.driver.start()
        node.executor.is_held = True
        node.follow(*(entry(offset, 1) for offset in range(4)), term=1, high_watermark=4)
        await node.settle()
        # While these are being written, another leader sends the state of a log that has gone on without this node.
        meta = SnapshotMeta(Offset(50), Term(2), MEMBERSHIP)
        node.driver.message_received(
            m.InstallSnapshot(term=Term(3), sender=OTHER, receiver=ME, snapshot=Snapshot(meta, b"\x91\xc4\x01x"))
        )
        node.executor.is_held = False
        node.executor.work()
        await node.settle()
        assert node.failures == []
        assert node.payloads.applied == [b"x"]
        assert node.journal[-2:] == ["sent AppendAccepted", "installed 50"]

    run(scenario)


def test_nothing_is_answered_or_stored_before_entries_that_take_their_time_are_applied() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk, entries_between_snapshots=2)
        await node.lead_alone()
        node.payloads.applying = may_apply = asyncio.Event()
        asking = [asyncio.ensure_future(node.driver.propose(payload, node.term)) for payload in (b"a", b"b")]
        await node.settle()
        late = asyncio.ensure_future(node.driver.propose(b"c", node.term))
        await node.settle()
        assert node.journal[-1] == "applying [1, 2]"
        assert not any(one.done() for one in asking)

        may_apply.set()

        assert await asyncio.gather(*asking, late) == [1, 2, 3]
        assert node.payloads.applied == [b"a", b"b", b"c"]
        journal = [line for line in node.journal if not line.startswith("sent")]
        assert journal.index("applied [1, 2]") < journal.index("snapshot 3") < journal.index("durable [3]")

    run(scenario)


def test_a_stop_waits_for_entries_that_are_being_applied() -> None:
    async def scenario(disk: SimulatedDisk) -> None:
        node = DrivenNode(disk)
        await node.lead_alone()
        node.payloads.applying = may_apply = asyncio.Event()
        asking = asyncio.ensure_future(node.driver.propose(b"a", node.term))
        await node.settle()
        stopping = asyncio.ensure_future(node.driver.stop())
        await node.settle()
        assert not stopping.done()
        may_apply.set()
        await stopping
        with pytest.raises(OutcomeUnknown):
            await asking

    run(scenario)
