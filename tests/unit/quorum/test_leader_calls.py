import asyncio
import gc
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from quorate.kernel.ids import NodeId, QuorumLeader, Term
from quorate.quorum.core.leader_requests import Describe, Done, LeaderAnswer, LeaderRequest, Redirect, encode
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.leader_calls import LeaderCalls, NoQuorum
from quorate.transport.peers.errors import OutcomeUnknown, PeerTimeout, PeerUnreachable
from quorate.transport.peers.frames import Channel
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import until

ME = NodeId(1)
Reply = LeaderAnswer | Exception


def leader(node_id: int, term: int = 1) -> QuorumLeader:
    return QuorumLeader(NodeId(node_id), Term(term))


class Peers:
    """Each node answers as told, its last answer for ever; one without answers never answers."""

    def __init__(self) -> None:
        self.replies: dict[int, list[Reply]] = {}
        self.asked: list[int] = []
        self.connected: set[int] = set()

    def is_connected(self, node_id: NodeId) -> bool:
        return node_id in self.connected

    async def request(self, channel: Channel, node_id: NodeId, payload: bytes, timeout_ms: float) -> bytes:
        assert channel is Channel.CONTROLLER
        del payload
        self.asked.append(node_id)
        replies = self.replies.get(node_id, [])
        if not replies:
            await until(asyncio.get_running_loop().time() + timeout_ms / 1000)
            raise PeerTimeout("no answer in time")
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if isinstance(reply, Exception):
            raise reply
        return encode(reply)


class Asker:
    def __init__(self) -> None:
        self.peers = Peers()
        self.known: QuorumLeader | None = None
        self.own: list[Reply] = []
        self.referrals: list[tuple[NodeId, str]] = []
        self.calls = LeaderCalls(
            ME,
            self.peers,
            loop=asyncio.get_running_loop(),
            random=Random(1),
            known_nodes=lambda: [NodeId(2), NodeId(3)],
            known_leader=lambda: self.known,
            answer=self._answer,
            on_referral=lambda *referral: self.referrals.append(referral),
        )

    async def _answer(self, request: LeaderRequest) -> LeaderAnswer:
        del request
        self.peers.asked.append(ME)
        if not self.own:
            await asyncio.get_running_loop().create_future()
        reply = self.own.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def ask(self, timeout_ms: float = 5_000) -> tuple[LeaderAnswer, bool]:
        return await self.calls.ask(Describe(), timeout_ms)


def run(scenario: Callable[[Asker], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scenario(Asker())

    with World(1) as world:
        world.run(whole())


def test_the_leader_answers_itself_without_its_peers() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known, asker.own = leader(1), [Done()]
        assert await asker.ask() == (Done(), False)
        assert asker.peers.asked == [1]

    run(scenario)


def test_the_leader_that_is_known_is_asked() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known, asker.peers.replies = leader(3), {3: [Done()]}
        assert await asker.ask() == (Done(), False)
        assert asker.peers.asked == [3]

    run(scenario)


def test_a_node_that_knows_no_leader_asks_one_that_can_be_reached_and_follows_it_at_once() -> None:
    async def scenario(asker: Asker) -> None:
        asker.peers.connected = {2}
        asker.peers.replies = {2: [Redirect(leader=leader(3), address="three:9192")], 3: [Done()]}
        started = asyncio.get_running_loop().time()
        assert await asker.ask() == (Done(), False)
        assert asker.peers.asked == [2, 3]
        assert asyncio.get_running_loop().time() == started
        assert asker.referrals == [(3, "three:9192")]  # It may be new to this node.

    run(scenario)


def test_a_hint_of_an_earlier_term_is_not_followed() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(3, term=5)
        asker.peers.replies = {3: [Redirect(leader=leader(2, term=4)), Done()]}
        assert await asker.ask() == (Done(), False)
        assert asker.peers.asked == [3, 3]

    run(scenario)


def test_nodes_that_do_not_know_the_leader_are_not_asked_without_pause() -> None:
    async def scenario(asker: Asker) -> None:
        asker.peers.connected = {2, 3}
        asker.peers.replies = {2: [Redirect(leader=None)], 3: [Redirect(leader=None)]}
        with pytest.raises(NoQuorum) as failure:
            await asker.ask(timeout_ms=1_000)
        assert not failure.value.may_be_done
        assert 10 <= len(asker.peers.asked) <= 100

    run(scenario)


def test_a_new_leader_is_asked_as_soon_as_it_is_known() -> None:
    async def scenario(asker: Asker) -> None:
        asking = asyncio.ensure_future(asker.ask())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asker.known, asker.peers.replies = leader(2), {2: [Done()]}
        asker.calls.leader_changed()
        started = asyncio.get_running_loop().time()
        assert await asking == (Done(), False)
        assert asyncio.get_running_loop().time() == started

    run(scenario)


def test_a_leader_that_loses_the_quorum_while_it_is_asked_sends_the_asker_on() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known, asker.own = leader(1, 1), [NotQuorumLeader("another leader came first", leader(2, 2))]
        asker.peers.replies = {2: [Done()]}
        assert await asker.ask() == (Done(), False)
        assert asker.peers.asked == [1, 2]

    run(scenario)


def test_a_leader_that_cannot_be_reached_was_not_asked() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(2)
        asker.peers.replies = {2: [PeerUnreachable("the link is down"), Done()]}
        assert await asker.ask() == (Done(), False)

    run(scenario)


@pytest.mark.parametrize("is_local", [True, False])
def test_after_an_unknown_outcome_the_asker_learns_that_it_may_have_been_done_twice(is_local: bool) -> None:
    async def scenario(asker: Asker) -> None:
        if is_local:
            asker.known, asker.own = leader(1), [OutcomeUnknown("the node stops"), Done()]
        else:
            asker.known, asker.peers.replies = leader(2), {2: [OutcomeUnknown("the link died"), Done()]}
        assert await asker.ask() == (Done(), True)

    run(scenario)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_leader_that_is_cut_off_is_given_up_and_the_next_one_asked(is_local: bool) -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(1 if is_local else 3)
        asking = asyncio.ensure_future(asker.ask(timeout_ms=10_000))
        await until(asyncio.get_running_loop().time() + 1)
        asker.known, asker.peers.replies = leader(2, 2), {2: [Done()]}
        asker.calls.leader_changed()
        changed = asyncio.get_running_loop().time()
        assert await asking == (Done(), True)
        assert asyncio.get_running_loop().time() - changed <= 0.1

    run(scenario)


def test_a_leader_that_others_named_is_not_given_up_for_an_older_one_that_this_node_knows() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(2, term=4)
        asker.peers.replies = {2: [Redirect(leader=leader(3, term=5))]}
        asking = asyncio.ensure_future(asker.ask(timeout_ms=10_000))
        await until(asyncio.get_running_loop().time() + 1)
        asker.calls.leader_changed()  # A connection has come up, and nothing else is new.
        await until(asyncio.get_running_loop().time() + 0.5)
        assert asker.peers.asked == [2, 3]
        asking.cancel()

    run(scenario)


def test_a_leader_that_changes_only_its_term_is_not_given_up() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(3)
        asking = asyncio.ensure_future(asker.ask(timeout_ms=10_000))
        await until(asyncio.get_running_loop().time() + 1)
        asker.known = leader(3, 2)
        asker.calls.leader_changed()
        await until(asyncio.get_running_loop().time() + 0.5)
        assert asker.peers.asked == [3]
        asking.cancel()

    run(scenario)


def test_the_deadline_ends_the_search_and_says_whether_something_may_have_happened() -> None:
    async def scenario(asker: Asker) -> None:
        asker.known = leader(2)
        started = asyncio.get_running_loop().time()
        with pytest.raises(NoQuorum) as failure:
            await asker.ask(timeout_ms=3_000)
        assert failure.value.may_be_done
        assert asyncio.get_running_loop().time() - started == pytest.approx(3)

    run(scenario)


def test_a_node_without_peers_waits_until_it_leads() -> None:
    async def scenario(asker: Asker) -> None:
        with pytest.raises(NoQuorum):
            await asker.ask(timeout_ms=500)
        assert asker.peers.asked == []
        asker.known, asker.own = leader(1), [Done()]
        assert await asker.ask() == (Done(), False)

    run(scenario)


@pytest.mark.parametrize("turns", range(8))
def test_an_attempt_that_fails_as_its_asker_is_cancelled_complains_to_nobody(turns: int) -> None:
    async def scenario(asker: Asker) -> None:
        loop = asyncio.get_running_loop()
        fails: asyncio.Future[LeaderAnswer] = loop.create_future()

        async def answer(request: LeaderRequest) -> LeaderAnswer:
            del request
            return await fails

        calls = LeaderCalls(
            ME,
            asker.peers,
            loop=loop,
            random=Random(1),
            known_nodes=list,
            known_leader=lambda: leader(1),
            answer=answer,
            on_referral=lambda *_: None,
        )
        asking = loop.create_task(calls.ask(Describe(), 5_000))
        await until(loop.time() + 0.001)
        fails.set_exception(OutcomeUnknown("the node stops"))
        for _ in range(turns):  # After some of them the attempt has failed, and its asker has not looked yet.
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        del asking
        gc.collect()

    run(scenario)
