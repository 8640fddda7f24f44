"""However many partitions a change concerns, the loop works on a few of them at a time, and serves none wrongly."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicName
from quorate.kernel.turns import PER_TURN
from quorate.metadata.core.commands import AlterTopicConfigs, ConfigChange, ConfigOperation, CreateTopic, DeleteTopic
from quorate.metadata.core.decisions import CreatedTopic
from quorate.metadata.core.records import PartitionChanged
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.replication import partitions
from quorate.replication.core.leader import LeaderStart, ReplicationConfig
from quorate.replication.leading import lead
from quorate.replication.partition import Partition
from quorate.replication.partition_logs import LogJobs
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import SimulatedDisk
from tests.simulation.simulated_node import DATA_DIR, SimulatedClock, SimulatedNode, settle

ORDERS = TopicName("orders")
FIRST = PartitionIndex(0)
MANY = 250
LOGS_A_JOB = 16
SHORT_RETENTION = ConfigChange(key="retention.ms", operation=ConfigOperation.SET, value="1234")

Scenario = Callable[[SimulatedNode, SimulatedDisk], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def on_a_node() -> None:
        disk = SimulatedDisk(Random(1))
        node = SimulatedNode(disk, SimulatedClock(), Random(1))
        await node.start()
        await scenario(node, disk)
        await node.stop()

    asyncio.run(on_a_node())


async def create(node: SimulatedNode, count: int) -> "asyncio.Future[CreatedTopic]":
    """As far as the metadata: worker threads have not begun yet, and whoever asked still waits."""
    command = CreateTopic(name=ORDERS, partition_count=count, replication_factor=1)
    creation = asyncio.ensure_future(node.node.metadata.submit_one(command))
    while ORDERS not in node.node.metadata.image.topics:
        await settle()
        if node.quorum_executor.queue:
            node.quorum_executor.run(0)
    return creation


async def delete(node: SimulatedNode) -> None:
    topic_id = node.node.metadata.image.topics[ORDERS].topic_id
    deletion = asyncio.ensure_future(node.node.metadata.submit_one(DeleteTopic(topic_id=topic_id)))
    await node.finish_without_partitions(deletion)


async def run_everything(node: SimulatedNode) -> None:
    while node.has_work:
        await node.run_some_work()
    await settle()


def folders(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list_directory(DATA_DIR) if name.startswith(ORDERS)]


def error_of(node: SimulatedNode) -> ErrorCode | None:
    try:
        node.node.partitions.led(ORDERS, FIRST)
    except KafkaError as error:
        return error.code
    return None


def test_creating_many_partitions_opens_no_log_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    really_open = PartitionLog.open

    def note(disk: SimulatedDisk, directory: str, config: LogConfig, **trust: bool) -> PartitionLog:
        opened.append(directory)
        return really_open(disk, directory, config, **trust)

    async def scenario(node: SimulatedNode, _: SimulatedDisk) -> None:
        monkeypatch.setattr(PartitionLog, "open", note)
        await create(node, MANY)
        await settle()
        assert opened == []
        a_job = list[int]()
        while node.has_work:
            before = len(opened)
            await node.run_some_work()
            a_job.append(len(opened) - before)
        assert len(opened) == MANY
        assert max(a_job) <= LOGS_A_JOB

    run(scenario)


def test_no_turn_of_the_loop_gives_a_role_to_all_partitions_of_a_large_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elected anew, as after the death of a broker: no log has to be opened, and still it takes several turns."""
    turns, roles = [0], dict[int, int]()

    def note(partition: Partition, start: LeaderStart, config: ReplicationConfig) -> None:
        roles[turns[0]] = roles.get(turns[0], 0) + 1
        lead(partition, start, config)

    async def scenario(node: SimulatedNode, _: SimulatedDisk) -> None:
        await create(node, MANY)
        await run_everything(node)
        monkeypatch.setattr(partitions, "lead", note)
        loop, counting = asyncio.get_running_loop(), [True]

        def count() -> None:
            turns[0] += 1
            if counting[0]:
                loop.call_soon(count)

        count()
        elect_anew(node)
        while sum(roles.values()) < MANY:
            await asyncio.sleep(0)
        counting[0] = False
        assert max(roles.values()) <= PER_TURN

    run(scenario)


def elect_anew(node: SimulatedNode) -> None:
    """A replay of records that give every partition its next leader epoch."""
    store = node.node.metadata
    topic = store.image.topics[ORDERS]
    records = [
        PartitionChanged(
            topic_id=topic.topic_id,
            partition=index,
            replicas=state.replicas,
            isr=state.isr,
            leader=state.leader,
            leader_epoch=LeaderEpoch(state.leader_epoch + 1),
            partition_epoch=state.partition_epoch + 1,
        )
        for index, state in topic.partitions.items()
    ]
    store.replay(records, Offset(store.image.version))


def test_a_replica_that_is_not_open_yet_is_refused_as_one_that_will_lead() -> None:
    async def scenario(node: SimulatedNode, _: SimulatedDisk) -> None:
        await create(node, 1)
        assert error_of(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await run_everything(node)
        assert error_of(node) is None

    run(scenario)


def test_a_creation_is_answered_when_the_replicas_of_the_node_that_was_asked_are_open() -> None:
    async def scenario(node: SimulatedNode, _: SimulatedDisk) -> None:
        topic = CreatableTopic(name=ORDERS, num_partitions=MANY, replication_factor=1)
        await node.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert error_of(node) is None

    run(scenario)


def test_a_topic_that_is_deleted_while_it_is_being_opened_leaves_nothing_behind() -> None:
    async def scenario(node: SimulatedNode, disk: SimulatedDisk) -> None:
        await create(node, 40)
        await settle()
        node.executor.run(0)  # Some are open, some are not, and nobody knows of either yet.
        await delete(node)
        assert error_of(node) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await run_everything(node)
        assert folders(disk) == []

    run(scenario)


def test_a_topic_that_is_made_anew_is_never_served_from_the_log_of_its_namesake() -> None:
    async def scenario(node: SimulatedNode, disk: SimulatedDisk) -> None:
        await create(node, 1)
        await run_everything(node)
        old = node.node.partitions.led(ORDERS, FIRST)
        await delete(node)
        await create(node, 1)
        assert error_of(node) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "its predecessor's folder is still there"
        await run_everything(node)
        new = node.node.partitions.led(ORDERS, FIRST)
        assert new is not old
        assert new.identity.topic_id == node.node.metadata.image.topics[ORDERS].topic_id
        assert len(folders(disk)) == 1

    run(scenario)


def test_a_config_that_changes_while_a_log_is_being_opened_is_in_force_when_it_is_open() -> None:
    async def scenario(node: SimulatedNode, _: SimulatedDisk) -> None:
        await create(node, 1)
        await settle()
        change = AlterTopicConfigs(name=ORDERS, changes=(SHORT_RETENTION,))
        await node.finish_without_partitions(asyncio.ensure_future(node.node.metadata.submit_one(change)))
        assert node.executor.queue, "the log is not open yet"
        await run_everything(node)
        assert node.node.partitions.led(ORDERS, FIRST).log.config.retention_ms == 1234

    run(scenario)


def test_a_small_topic_does_not_wait_for_a_large_one() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        node = SimulatedNode(SimulatedDisk(Random(1)), SimulatedClock(), Random(1))
        jobs = LogJobs(loop, node.executor, lambda error: pytest.fail(str(error)), jobs_at_a_time=1)
        done = list[tuple[str, int]]()

        def double(numbers: object) -> list[int]:
            return [2 * number for number in numbers]  # type: ignore[attr-defined]

        for number in range(500):
            jobs.submit("large", double, number, lambda result: done.append(("large", result)))
        jobs.submit("small", double, 1, lambda result: done.append(("small", result)))
        while ("small", 2) not in done:
            await settle()
            node.executor.run(0)
        assert len(done) <= 3 * LOGS_A_JOB

    asyncio.run(scenario())
