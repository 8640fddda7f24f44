"""The quorum's metadata store: what it asks for, what it makes of the answer, and when it answers itself."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, Offset, Term, TopicId, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_commands, encode_outcomes
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.decisions import CreatedTopic
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.quorum.core.entries import Entry, EntryKind, Snapshot, SnapshotMeta
from quorate.quorum.core.leader_requests import LeaderAnswer, LeaderRequest, Submit, Submitted
from quorate.quorum.core.membership import Membership
from quorate.quorum.entry_payload import encode_records
from quorate.quorum.leader_calls import NoQuorum
from quorate.quorum.metadata_store import COMMANDS_AT_ONCE, PARTITIONS_AT_ONCE, QuorumMetadataStore, parts_of
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import HeldWork, until


class Leader:
    """Another node that leads: it decides at once, and its log comes to this node when the test says so."""

    def __init__(self) -> None:
        ids = Random(9)
        self.new_uuid: Callable[[], UUID] = lambda: UUID(int=ids.getrandbits(128), version=4)
        self._controller = Controller(BrokerView(node_id=NodeId(2), static_configs={}), self.new_uuid, lambda: 0)
        self.image = MetadataImage()
        self.log: list[Entry] = []
        self.store = QuorumMetadataStore(self, asyncio.get_running_loop(), self.new_uuid, HeldWork())
        #: How often the answer is lost, and the request asked again.
        self.lost_answers = 0
        self.is_gone = False
        self.holds_its_log = False

    def decide(self, commands: Sequence[c.Command]) -> Submitted:
        outcomes, records = self._controller.decide_all(self.image, commands)
        if records:
            offset = self.image.version
            self.image, _ = self.image.replay(records, Offset(offset + 1))
            self.log.append(Entry(offset, Term(1), EntryKind.COMMAND, encode_records(records)))
        return Submitted(outcomes=encode_outcomes(outcomes, self.image.version))

    async def ask(self, request: LeaderRequest, timeout_ms: float) -> tuple[LeaderAnswer, bool]:
        assert isinstance(request, Submit)
        if self.is_gone:
            await until(asyncio.get_running_loop().time() + timeout_ms / 1000)
            raise NoQuorum(may_be_done=True)
        for _ in range(self.lost_answers):
            self.decide(decode_commands(request.commands))
        answer = self.decide(decode_commands(request.commands))
        if not self.holds_its_log:
            self.send_log()
        return answer, self.lost_answers > 0

    def send_log(self) -> None:
        log, self.log = self.log, []
        self.applying = self.store.apply(None, log)

    def store_as_decided(self) -> QuorumMetadataStore:
        store = QuorumMetadataStore(self, asyncio.get_running_loop(), self.new_uuid)
        store.image = self.image
        return store

    async def create(self, name: str, partition_count: int = 1) -> CreatedTopic:
        return await self.store.submit_one(
            c.CreateTopic(name=name, partition_count=partition_count, replication_factor=1)
        )


def decide_topics(leader: Leader, *topics: tuple[str, int]) -> list[TopicId]:
    leader.decide([c.CreateTopic(name=name, partition_count=count, replication_factor=1) for name, count in topics])
    return [leader.image.topics[TopicName(name)].topic_id for name, _ in topics]


def snapshot_of(store: QuorumMetadataStore) -> Snapshot:
    return Snapshot(SnapshotMeta(store.image.version, Term(1), Membership.of([])), store.snapshot()())


def run(scenario: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        leader = Leader()
        leader.decide([c.RegisterBroker(node_id=NodeId(1), host="h", port=1, fenced=False)])
        leader.send_log()
        await scenario(leader)

    with World(1) as world:
        world.run(whole())


def test_a_command_is_answered_only_when_the_own_image_shows_its_result() -> None:
    async def scenario(leader: Leader) -> None:
        leader.holds_its_log = True
        asking = asyncio.ensure_future(leader.create("a"))
        await until(asyncio.get_running_loop().time() + 1)
        assert not asking.done()
        leader.send_log()
        answer = await asking
        assert leader.store.image.topics[TopicName("a")] == answer.topic

    run(scenario)


def test_a_refusal_is_answered_only_when_the_own_image_shows_its_reason() -> None:
    async def scenario(leader: Leader) -> None:
        leader.holds_its_log = True
        leader.decide([c.CreateTopic(name="a", partition_count=1, replication_factor=1)])
        asking = asyncio.ensure_future(leader.create("a"))
        await until(asyncio.get_running_loop().time() + 1)
        assert not asking.done()
        leader.send_log()
        with pytest.raises(KafkaError) as refusal:
            await asking
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_a_creation_whose_answer_was_lost_is_known_by_its_topic_id() -> None:
    async def scenario(leader: Leader) -> None:
        leader.lost_answers = 2
        answer = await leader.create("a")
        assert leader.store.image.topics[TopicName("a")] == answer.topic

    run(scenario)


def test_a_creation_that_another_client_was_faster_with_is_refused_also_when_repeated() -> None:
    async def scenario(leader: Leader) -> None:
        leader.decide([c.CreateTopic(name="a", partition_count=1, replication_factor=1)])
        leader.lost_answers = 1
        with pytest.raises(KafkaError) as refusal:
            await leader.create("a")
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_a_deletion_and_an_extension_whose_answers_were_lost_succeed() -> None:
    async def scenario(leader: Leader) -> None:
        topic = (await leader.create("a")).topic
        leader.lost_answers = 1
        await leader.store.submit_one(c.CreatePartitions(name=TopicName("a"), total_count=3))
        assert len(leader.store.image.topics[TopicName("a")].partitions) == 3
        await leader.store.submit_one(c.DeleteTopic(topic_id=topic.topic_id))
        assert not leader.store.image.topics

    run(scenario)


def test_without_a_lost_answer_the_same_refusals_are_shown() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.create("a", partition_count=3)
        outcomes = await leader.store.submit(
            [c.CreatePartitions(name=TopicName("a"), total_count=3), c.DeleteTopic(topic_id=_no_topic(leader))]
        )
        assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]

    def _no_topic(leader: Leader) -> Any:
        return leader.new_uuid()

    run(scenario)


def test_a_quorum_that_does_not_answer_gives_each_command_a_time_out() -> None:
    async def scenario(leader: Leader) -> None:
        leader.is_gone = True
        outcomes = await leader.store.submit([c.FormCluster(), c.FormCluster()])
        assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [
            ErrorCode.REQUEST_TIMED_OUT
        ] * 2

    run(scenario)


def test_an_own_log_that_does_not_follow_in_time_gives_a_time_out_and_leaves_nobody_waiting() -> None:
    async def scenario(leader: Leader) -> None:
        leader.holds_its_log = True
        with pytest.raises(KafkaError) as refusal:
            await leader.create("a")
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        leader.send_log()
        with pytest.raises(KafkaError) as refusal:
            await leader.create("a")
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(scenario)


def test_an_asker_that_goes_away_while_it_waits_for_the_image_harms_nobody() -> None:
    async def scenario(leader: Leader) -> None:
        leader.holds_its_log = True
        leaving, staying = asyncio.ensure_future(leader.create("a")), asyncio.ensure_future(leader.create("b"))
        await until(asyncio.get_running_loop().time() + 1)
        leaving.cancel()
        leader.send_log()
        await staying
        assert leader.store.image.topics.keys() == {"a", "b"}

    run(scenario)


def test_an_entry_that_is_no_command_only_moves_the_version_and_wakes_those_who_wait() -> None:
    async def scenario(leader: Leader) -> None:
        version = leader.store.image.version
        deltas: list[Delta] = []
        leader.store.subscribe(lambda _, delta: deltas.append(delta))
        waiting = asyncio.ensure_future(leader.store.reached(Offset(version + 1), 5))
        await until(asyncio.get_running_loop().time() + 1)
        assert leader.store.apply(None, [Entry(version, Term(1), EntryKind.NO_OP)]) is None
        await waiting
        assert (leader.store.image.version, deltas) == (version + 1, [])

    run(scenario)


def test_a_snapshot_brings_the_whole_image_and_says_all_that_is_new() -> None:
    async def scenario(leader: Leader) -> None:
        gone = (await leader.create("gone")).topic
        await leader.create("kept")
        leader.decide(
            [
                c.DeleteTopic(topic_id=gone.topic_id),
                c.CreateTopic(name="new", partition_count=2, replication_factor=1),
                c.RegisterBroker(node_id=NodeId(7), host="h", port=1),
            ]
        )
        other = QuorumMetadataStore(leader, asyncio.get_running_loop(), leader.new_uuid)
        other.image = leader.image
        heard: list[tuple[MetadataImage, Delta]] = []
        leader.store.subscribe(lambda image, delta: heard.append((image, delta)))
        waiting = asyncio.ensure_future(leader.store.reached(leader.image.version, 5))
        await until(asyncio.get_running_loop().time() + 1)

        leader.store.install(snapshot_of(other))

        await waiting
        ((image, delta),) = heard
        assert image == leader.image
        assert delta.deleted_topics == (gone,)
        assert [(name.topic, name.partition) for name in delta.changed_leaders] == [("new", 0), ("new", 1)]
        assert delta.changed_brokers == (7,)

    run(scenario)


def test_many_commands_are_agreed_on_part_after_part() -> None:
    """What is agreed on together is applied by every node in one turn of its loop."""

    async def scenario(leader: Leader) -> None:
        names = [f"topic-{number}" for number in range(2 * COMMANDS_AT_ONCE + 1)]
        leader.holds_its_log = True
        asking = asyncio.ensure_future(leader.store.submit([c.CreateTopic(name=name) for name in names]))
        sizes: list[int] = []
        for _ in range(3):
            while not leader.log:
                await until(asyncio.get_running_loop().time() + 0.001)
            sizes.append(len(leader.image.topics) - sum(sizes))
            leader.send_log()
        outcomes = await asking
        assert sizes == [COMMANDS_AT_ONCE, COMMANDS_AT_ONCE, 1]
        assert not any(isinstance(outcome, KafkaError) for outcome in outcomes)
        assert leader.store.image.topics.keys() == set(names)

    run(scenario)


def test_large_topics_are_agreed_on_part_after_part() -> None:
    large = [c.CreateTopic(name=f"large-{n}", partition_count=PARTITIONS_AT_ONCE // 2) for n in range(3)]
    larger = c.CreateTopic(name="larger", partition_count=2 * PARTITIONS_AT_ONCE)
    small = c.CreateTopic(name="small", partition_count=1)
    parts = list(parts_of(MetadataImage(), [*large, larger, small]))
    assert parts == [large[:2], large[2:], [larger], [small]]
    assert not list(parts_of(MetadataImage(), []))


def test_without_a_quorum_the_parts_that_are_left_time_out_together() -> None:
    async def scenario(leader: Leader) -> None:
        leader.is_gone = True
        begun = asyncio.get_running_loop().time()
        outcomes = await leader.store.submit([c.CreateTopic(name=f"t{n}") for n in range(2 * COMMANDS_AT_ONCE)])
        assert len(outcomes) == 2 * COMMANDS_AT_ONCE
        assert {outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)} == {
            ErrorCode.REQUEST_TIMED_OUT
        }
        assert asyncio.get_running_loop().time() - begun == 15  # Of virtual time: as long as one part.

    run(scenario)


def test_what_a_long_entry_makes_of_the_image_is_made_by_a_worker_and_shown_in_the_order_of_the_log() -> None:
    async def scenario(leader: Leader) -> None:
        held = HeldWork()
        held.is_held = True
        store = QuorumMetadataStore(leader, asyncio.get_running_loop(), leader.new_uuid, held)
        store.install(snapshot_of(leader.store))
        shown: list[tuple[Offset, list[str]]] = []
        store.subscribe(lambda image, _: shown.append((image.version, sorted(image.topics))))
        leader.holds_its_log = True
        for name, count in (("small", 1), ("long", 1_000), ("after", 1)):
            leader.decide([c.CreateTopic(name=name, partition_count=count, replication_factor=1)])
        waiting = asyncio.ensure_future(store.reached(leader.image.version, 60))

        applying = store.apply(None, leader.log)

        await until(asyncio.get_running_loop().time() + 1)
        assert applying is not None
        assert [topics for _, topics in shown] == [["small"]]
        assert not waiting.done()
        held.work()
        await applying
        await waiting
        assert [topics for _, topics in shown] == [["small"], ["long", "small"], ["after", "long", "small"]]
        assert [version for version, _ in shown] == [entry.offset + 1 for entry in leader.log]
        assert store.image == leader.image

    run(scenario)


def test_an_entry_that_a_worker_cannot_apply_is_told_to_whoever_waits_for_it() -> None:
    async def scenario(leader: Leader) -> None:
        store = QuorumMetadataStore(leader, asyncio.get_running_loop(), leader.new_uuid)
        broken = Entry(Offset(0), Term(1), EntryKind.COMMAND, b"\xc1" * 100_000)
        applying = store.apply(None, [broken])
        assert applying is not None
        with pytest.raises(msgspec.DecodeError):
            await applying

    run(scenario)


def test_the_deletion_of_a_large_topic_is_applied_by_a_worker_though_its_entry_is_short() -> None:
    async def scenario(leader: Leader) -> None:
        held = HeldWork()
        store = QuorumMetadataStore(leader, asyncio.get_running_loop(), leader.new_uuid, held)
        (created,) = decide_topics(leader, ("large", 1_000))
        store.install(snapshot_of(leader.store_as_decided()))
        held.is_held = True
        leader.log = []
        leader.decide([c.DeleteTopic(topic_id=created)])
        applying = store.apply(None, leader.log)
        await until(asyncio.get_running_loop().time() + 1)
        assert applying is not None
        assert list(store.image.topics) == ["large"]
        held.work()
        await applying
        assert store.image == leader.image

    run(scenario)


def test_a_snapshot_for_a_node_that_runs_is_read_by_a_worker_before_the_entries_behind_it() -> None:
    async def scenario(leader: Leader) -> None:
        held = HeldWork()
        held.is_held = True
        store = QuorumMetadataStore(leader, asyncio.get_running_loop(), leader.new_uuid, held)
        decide_topics(leader, ("a", 1))
        snapshot = snapshot_of(leader.store_as_decided())
        leader.log = []
        decide_topics(leader, ("b", 1))
        applying = store.apply(snapshot, leader.log)
        await until(asyncio.get_running_loop().time() + 1)
        assert applying is not None
        assert store.image == MetadataImage()
        held.work()
        await applying
        assert store.image == leader.image

    run(scenario)
