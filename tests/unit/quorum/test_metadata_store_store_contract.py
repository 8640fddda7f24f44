"""What every metadata store promises, whoever agrees: memory alone, a quorum of one, or any node of three."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.config import parse_node_config
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, TopicId, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.store import MetadataStore
from tests.simulation.world.host import SECRET_FILE
from tests.simulation.world.served_node import start
from tests.simulation.world.world import World
from tests.unit.metadata.in_memory_store import InMemoryMetadataStore
from tests.unit.quorum.leading_node import LeadingNode
from tests.unit.quorum.quorum_disk import new_disk

Promise = Callable[[MetadataStore], Coroutine[Any, Any, None]]
Run = Callable[[Promise], None]


def in_memory(promise: Promise) -> None:
    async def whole() -> None:
        ids = iter(range(1, 1_000))
        controller = Controller(
            BrokerView(node_id=NodeId(1), static_configs={}), lambda: UUID(int=next(ids)), lambda: 0
        )
        store = InMemoryMetadataStore(controller, MetadataImage())
        await store.submit_one(c.RegisterBroker(node_id=NodeId(1), host="h", port=1, fenced=False))
        await promise(store)

    asyncio.run(whole())


def quorum_of_one(promise: Promise, entries_between_snapshots: int = 1_000) -> None:
    async def whole() -> None:
        disk = new_disk()
        node = LeadingNode(disk, entries_between_snapshots=entries_between_snapshots)
        await node.start()
        await node.bring_up(1)
        await promise(node.store)
        image = node.store.image
        await node.stop()
        disk.crash()
        again = LeadingNode(disk)
        await again.start()
        assert again.store.image.topics == image.topics
        assert again.store.image.brokers == image.brokers
        await again.stop()

    with World(1) as world:
        world.run(whole())


def quorum_of_one_that_takes_snapshots(promise: Promise) -> None:
    quorum_of_one(promise, entries_between_snapshots=2)


def every_node_of_three(promise: Promise) -> None:
    voters = "\n".join(f'{i} = "10.0.0.{i}:9093"' for i in (1, 2, 3))
    for asked in range(3):
        with World(asked) as world:
            hosts = [world.add_host(f"n{i}") for i in (1, 2, 3)]
            configs = [
                parse_node_config(
                    f'node_id = {i}\ndata_dir = "/data"\ncluster_id = "sim"\nlisten = "10.0.0.{i}:9092"\n'
                    f'peer_listen = "10.0.0.{i}:9093"\ncluster_secret_file = "{SECRET_FILE}"\n[voters]\n{voters}\n'
                )
                for i in (1, 2, 3)
            ]
            world.run(_ask_one(world, hosts, configs, asked, promise))


async def _ask_one(world: World, hosts: Any, configs: Any, asked: int, promise: Promise) -> None:
    starts: list[Awaitable[Any]] = [host.run(start(host, config)) for host, config in zip(hosts, configs, strict=True)]
    nodes = await asyncio.gather(*starts)
    await world.until(lambda: len(nodes[asked].metadata.image.live_brokers) == 3)
    await hosts[asked].run(promise(nodes[asked].metadata))
    topics = nodes[asked].metadata.image.topics
    await world.until(lambda: all(node.metadata.image.topics == topics for node in nodes))


every_store = pytest.mark.parametrize(
    "run", [in_memory, quorum_of_one, quorum_of_one_that_takes_snapshots, every_node_of_three]
)


def create(name: str, partition_count: int = 1) -> c.CreateTopic:
    return c.CreateTopic(name=name, partition_count=partition_count, replication_factor=1)


def codes(outcomes: list[Any]) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE for outcome in outcomes]


@every_store
def test_the_image_shows_a_command_when_it_is_answered(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        version = store.image.version
        answer = await store.submit_one(create("a", partition_count=2))
        assert store.image.topics[TopicName("a")] == answer.topic
        assert store.image.version > version

    run(promise)


@every_store
def test_commands_submitted_together_build_on_each_other_and_each_has_its_outcome(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        commands: list[c.Command] = [
            create("a"),
            create("a"),
            c.CreatePartitions(name=TopicName("a"), total_count=3),
            c.DeleteTopic(topic_id=TopicId(UUID(int=99))),
            create("b"),
        ]
        outcomes = await store.submit(commands)
        assert codes(outcomes) == [
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NONE,
        ]
        assert {name: len(topic.partitions) for name, topic in store.image.topics.items()} == {"a": 3, "b": 1}

    run(promise)


@every_store
def test_a_batch_of_nothing_has_no_outcomes(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        assert await store.submit([]) == []

    run(promise)


@every_store
def test_the_image_is_current_where_a_majority_says_so(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        await store.submit_one(create("a"))
        assert await store.is_current()
        assert TopicName("a") in store.image.topics

    run(promise)


@every_store
def test_one_command_that_is_refused_raises_its_error(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        with pytest.raises(KafkaError) as refusal:
            await store.submit_one(create("not/a/name"))
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert refusal.value.message

    run(promise)


@every_store
def test_a_validation_answers_the_same_and_changes_nothing(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        outcomes = await store.submit([create("a", partition_count=4), create("a")], validate_only=True)
        assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert not isinstance(outcomes[0], KafkaError)
        assert outcomes[0].topic is not None
        assert len(outcomes[0].topic.partitions) == 4
        assert not store.image.topics

    run(promise)


@every_store
def test_of_many_who_create_one_topic_at_once_one_succeeds(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        outcomes = await asyncio.gather(*(store.submit([create("a")]) for _ in range(8)))
        assert (
            sorted(codes([outcome for (outcome,) in outcomes]))
            == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 7
        )

    run(promise)


@every_store
def test_listeners_are_told_of_every_change_once_in_order_with_the_image_that_shows_it(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        heard: list[str] = []

        def listen(image: MetadataImage, delta: Delta) -> None:
            for name in delta.changed_partitions:
                assert name.partition in image.topics[name.topic].partitions
                heard.append(f"changed {name.topic}")
            heard.extend(f"deleted {topic.name}" for topic in delta.deleted_topics)

        store.subscribe(listen)
        topic = (await store.submit_one(create("a"))).topic
        assert topic is not None
        await store.submit([create("a")], validate_only=True)
        await store.submit_one(create("b"))
        await store.submit_one(c.DeleteTopic(topic_id=topic.topic_id))
        assert heard == ["changed a", "changed b", "deleted a"]

    run(promise)


@every_store
def test_an_asker_that_goes_away_does_not_stop_those_who_stay(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        leaving = [asyncio.ensure_future(store.submit([create(f"gone-{i}")])) for i in range(3)]
        staying = [asyncio.ensure_future(store.submit([create(f"kept-{i}")])) for i in range(3)]
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        outcomes = await asyncio.gather(*staying)
        assert codes([outcome for (outcome,) in outcomes]) == [ErrorCode.NONE] * 3
        await store.submit_one(create("later"))
        assert {"kept-0", "kept-1", "kept-2", "later"} <= store.image.topics.keys()

    run(promise)


@every_store
def test_blocks_of_producer_ids_never_overlap(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        answers = await asyncio.gather(*(store.submit_one(c.AllocateProducerIds(count=10)) for _ in range(5)))
        firsts = sorted(answer.first for answer in answers)
        assert len(firsts) == 5
        assert all(later - earlier >= 10 for earlier, later in pairwise(firsts))

    run(promise)


@every_store
def test_a_creation_repeated_with_its_topic_id_succeeds_and_changes_nothing(run: Run) -> None:
    async def promise(store: MetadataStore) -> None:
        command = c.CreateTopic(
            name="a", partition_count=1, replication_factor=1, topic_id=TopicId(UUID(int=7, version=4))
        )
        first = await store.submit_one(command)
        again = await store.submit_one(command)
        assert again.topic == first.topic
        assert store.image.topics[TopicName("a")] == first.topic

    run(promise)
