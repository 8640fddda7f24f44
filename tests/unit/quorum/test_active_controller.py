import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, Offset, QuorumLeader, Term
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import MetadataImage
from quorate.quorum.entry_payload import decode_records
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.leadership import DECIDED_AT_ONCE, ActiveController
from quorate.transport.peers.errors import OutcomeUnknown
from tests.simulation.simulated_node import QueuedExecutor
from tests.unit.metadata.in_memory_store import InMemoryMetadataStore

TERM = Term(4)


class Agreement:
    """The quorum, which agrees when the test says so."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        ids = iter(range(1, 1_000))
        controller = Controller(
            BrokerView(node_id=NodeId(1), static_configs={}), lambda: UUID(int=next(ids)), lambda: 0
        )
        self.store = InMemoryMetadataStore(controller, MetadataImage())
        self.proposals: list[tuple[bytes, Term, asyncio.Future[Offset]]] = []
        self.deposed: NotQuorumLeader | None = None
        self.workers = QueuedExecutor()
        self.active = ActiveController(
            QuorumLeader(NodeId(1), TERM),
            controller,
            self.store,
            propose=self._propose,
            confirm=self._confirm,
            loop=loop,
            executor=self.workers,
        )

    async def _propose(self, payload: bytes, term: Term) -> Offset:
        agreed = asyncio.get_running_loop().create_future()
        self.proposals.append((payload, term, agreed))
        return await asyncio.shield(agreed)

    async def _confirm(self) -> Offset:
        if self.deposed is not None:
            raise self.deposed
        return self.store.image.version

    def agree(self) -> None:
        payload, _, agreed = self.proposals.pop(0)
        offset = self.store.image.version
        self.store.replay(decode_records(payload), Offset(offset + 1))
        agreed.set_result(offset)

    def fail(self, error: Exception) -> None:
        self.proposals.pop(0)[2].set_exception(error)

    def submit(self, *commands: c.Command, validate_only: bool = False) -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self.active.submit(commands, validate_only=validate_only))

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def run(scenario: Callable[[Agreement], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        agreement = Agreement()
        register = c.RegisterBroker(node_id=NodeId(1), host="h", port=1, fenced=False)
        await agreement.store.submit_one(register)
        await scenario(agreement)

    asyncio.run(whole())


def create(name: str) -> c.CreateTopic:
    return c.CreateTopic(name=name, partition_count=1, replication_factor=1)


def test_what_arrives_while_a_batch_is_agreed_on_makes_the_next_batch_and_sees_the_first() -> None:
    async def scenario(quorum: Agreement) -> None:
        first = quorum.submit(create("a"))
        await quorum.settle()
        second, third = quorum.submit(create("a")), quorum.submit(create("b"))
        await quorum.settle()
        assert len(quorum.proposals) == 1
        quorum.agree()
        await quorum.settle()
        assert len(quorum.proposals) == 1
        assert not second.done()
        quorum.agree()
        (refused,) = (await second).outcomes
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
        versions = [(await asked).version for asked in (first, third)]
        assert versions == [2, 3]
        assert quorum.store.image.topics.keys() == {"a", "b"}

    run(scenario)


def test_decisions_are_proposed_in_the_term_that_they_were_made_in() -> None:
    async def scenario(quorum: Agreement) -> None:
        asked = quorum.submit(create("a"))
        await quorum.settle()
        assert [term for _, term, _ in quorum.proposals] == [TERM]
        quorum.agree()
        await asked

    run(scenario)


def test_a_refusal_or_a_validation_needs_no_agreement() -> None:
    async def scenario(quorum: Agreement) -> None:
        (refused,) = (await quorum.submit(create("../a"))).outcomes
        assert isinstance(refused, KafkaError)
        (valid,) = (await quorum.submit(create("a"), validate_only=True)).outcomes
        assert not isinstance(valid, KafkaError)
        assert quorum.proposals == []

    run(scenario)


def test_an_asker_that_goes_away_stops_neither_its_batch_nor_the_next() -> None:
    async def scenario(quorum: Agreement) -> None:
        leaving, staying = quorum.submit(create("a")), quorum.submit(create("b"))
        await quorum.settle()
        leaving.cancel()
        late = quorum.submit(create("c"))
        await quorum.settle()
        quorum.agree()
        await staying
        await quorum.settle()
        quorum.agree()
        await late
        assert quorum.store.image.topics.keys() == {"a", "b", "c"}

    run(scenario)


def test_an_asker_that_goes_away_while_it_waits_for_its_turn_is_still_carried_out() -> None:
    async def scenario(quorum: Agreement) -> None:
        first = quorum.submit(create("a"))
        await quorum.settle()
        leaving = quorum.submit(create("b"))
        await quorum.settle()
        leaving.cancel()
        quorum.agree()
        await first
        await quorum.settle()
        quorum.agree()
        last = quorum.submit(create("c"))
        await quorum.settle()
        quorum.agree()
        await last
        assert quorum.store.image.topics.keys() == {"a", "b", "c"}

    run(scenario)


@pytest.mark.parametrize("error", [NotQuorumLeader("another leader came first", None), OutcomeUnknown("a snapshot")])
def test_a_batch_that_is_not_agreed_on_fails_for_all_its_askers_and_for_nobody_else(error: Exception) -> None:
    async def scenario(quorum: Agreement) -> None:
        asked = [quorum.submit(create("a")), quorum.submit(create("a"))]
        await quorum.settle()
        later = quorum.submit(create("b"))
        await quorum.settle()
        quorum.fail(error)
        assert await asyncio.gather(*asked, return_exceptions=True) == [error, error]
        await quorum.settle()
        quorum.agree()
        await later
        assert quorum.store.image.topics.keys() == {"b"}

    run(scenario)


def test_after_resigning_nothing_more_is_decided_but_what_was_proposed_is_followed_to_its_end() -> None:
    async def scenario(quorum: Agreement) -> None:
        proposed = quorum.submit(create("a"))
        await quorum.settle()
        waiting = quorum.submit(create("b"))
        await quorum.settle()
        quorum.active.resign()
        with pytest.raises(NotQuorumLeader):
            await waiting
        with pytest.raises(NotQuorumLeader):
            await quorum.submit(create("c"))
        quorum.agree()
        assert (await proposed).version == 2
        await quorum.settle()
        assert quorum.proposals == []

    run(scenario)


def test_a_leader_that_was_deposed_refuses_nothing_in_its_own_name() -> None:
    async def scenario(quorum: Agreement) -> None:
        quorum.deposed = NotQuorumLeader("another leads", None)
        refused = quorum.submit(c.CreateTopic(name="no such name!"))
        validated = quorum.submit(c.CreateTopic(name="orders"), validate_only=True)
        await quorum.settle()
        for future in (refused, validated):
            with pytest.raises(NotQuorumLeader):
                future.result()

    run(scenario)


MANY = DECIDED_AT_ONCE + 1


@pytest.mark.parametrize(
    "commands", [[c.CreateTopic(name="big", partition_count=MANY)], [create(f"t{n}") for n in range(MANY)]]
)
def test_a_decision_about_many_partitions_is_made_by_a_worker(commands: list[c.Command]) -> None:
    async def scenario(quorum: Agreement) -> None:
        done = quorum.submit(*commands)
        await quorum.settle()
        assert not quorum.proposals
        waiting = quorum.submit(create("after"))
        quorum.workers.run(0)
        await quorum.settle()
        quorum.agree()
        assert len((await done).outcomes) == len(commands)
        await quorum.settle()
        quorum.agree()
        assert (await waiting).outcomes
        assert sum(len(topic.partitions) for topic in quorum.store.image.topics.values()) == MANY + 1

    run(scenario)


def test_a_leader_that_resigns_while_a_worker_decides_proposes_in_its_own_term_only() -> None:
    async def scenario(quorum: Agreement) -> None:
        done = quorum.submit(c.CreateTopic(name="big", partition_count=MANY))
        await quorum.settle()
        quorum.active.resign()
        quorum.workers.run(0)
        await quorum.settle()
        assert [term for _, term, _ in quorum.proposals] == [TERM]
        error = NotQuorumLeader("another leads", None)
        quorum.fail(error)
        with pytest.raises(NotQuorumLeader):
            await done

    run(scenario)
