"""A production node, its server and its dispatcher run in the simulated world, and keep what they acknowledged."""

import pytest

from quorate.kernel.ids import Offset
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from tests.simulation.world.host import HostDied, SimulatedHost
from tests.simulation.world.kafka_connection import KafkaConnection
from tests.simulation.world.random_faults import RandomFaults
from tests.simulation.world.served_node import PORT, serve
from tests.simulation.world.world import World

SEEDS = range(20)


class Client:
    """Writes numbered records to one partition, and reads them back; runs on a host of its own."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls) -> "Client":
        return cls(await KafkaConnection.open("node", PORT))

    async def create_topic(self) -> None:
        versions = await self._connection.call(
            ApiVersionsRequest(client_software_name="simulated", client_software_version="1"), 3, ApiVersionsResponse
        )
        assert versions.error_code == 0
        topic = CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
        created = await self._connection.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert [result.error_code for result in created.topics] == [0]

    async def produce(self, value: bytes) -> int:
        """Returns the offset that was acknowledged."""
        batch = build_batch([Record(Offset(0), 0, None, value)])
        data = TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
        response = await self._connection.call(request, 9, ProduceResponse)
        (result,) = response.responses[0].partition_responses
        if result.error_code:
            raise ConnectionError(f"refused with {result.error_code}")
        return result.base_offset

    async def fetch_all(self, up_to: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        while len(found) < up_to:
            wanted = FetchPartition(partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="topic", partitions=[wanted])]
            )
            response = await self._connection.call(request, 11, FetchResponse)
            (data,) = response.responses[0].partitions
            assert data.error_code == 0
            records = data.records
            if not isinstance(records, memoryview):
                continue
            for position, _ in iterate_batches(records, strict=True):
                found |= {record.offset: record.value or b"" for record in iterate_records(records, position)}
        return found


async def produce_until_the_end(acknowledged: dict[int, bytes]) -> None:
    client = await Client.connect()
    await client.create_topic()
    for number in range(10_000):
        value = b"value %d" % number
        acknowledged[await client.produce(value)] = value


async def produce_whatever_happens(world: World, acknowledged: dict[int, bytes]) -> None:
    number = 0
    while True:
        try:
            client = await Client.connect()
            while True:
                number += 1
                value = b"value %d" % number
                acknowledged[await client.produce(value)] = value
                await world.sleep(0.05)
        except OSError:
            await world.sleep(0.1)


async def read_back(count: int) -> dict[int, bytes]:
    return await (await Client.connect()).fetch_all(count)


async def crash_and_check(world: World, node: SimulatedHost, *, loses_power: bool) -> None:
    client = world.add_host("client")
    await serve(node)
    acknowledged: dict[int, bytes] = {}
    writing = world.scenario.loop.create_task(client.run(produce_until_the_end(acknowledged)))
    await world.until(lambda: len(acknowledged) > 20)
    await world.sleep(world.random.random() * 0.01)
    if loses_power:
        node.power_off()
    else:
        node.kill()
    await world.sleep(1)
    node.boot()
    await serve(node)
    with pytest.raises((ConnectionError, TimeoutError)):  # A machine without power does not say goodbye.
        await writing
    found = await client.run(read_back(len(acknowledged)))
    assert found.items() >= acknowledged.items()


@pytest.mark.parametrize("loses_power", [False, True], ids=["kill", "power cut"])
def test_what_a_node_acknowledged_is_there_after_a_crash(loses_power: bool) -> None:
    for seed in SEEDS:
        with World(seed) as world:
            world.run(crash_and_check(world, world.add_host("node"), loses_power=loses_power))


def test_what_a_node_acknowledged_is_there_after_a_power_cut_in_the_middle_of_a_write() -> None:
    async def scenario() -> None:
        acknowledged: dict[int, bytes] = {}
        client = world.add_host("client")
        node.disk.steps_until_power_cut = world.random.randint(1, 200)
        try:
            await serve(node)
            writing = world.scenario.loop.create_task(client.run(produce_until_the_end(acknowledged)))
            await world.until(lambda: not node.is_alive)
            client.kill()
            with pytest.raises(HostDied):
                await writing
            client.boot()
        except HostDied:
            pass
        node.boot()
        await serve(node)
        if acknowledged:
            found = await client.run(read_back(len(acknowledged)))
            assert found.items() >= acknowledged.items()

    for seed in SEEDS:
        with World(seed) as world:
            node = world.add_host("node")
            world.run(scenario())


def test_what_a_node_acknowledged_outlives_random_faults() -> None:
    async def scenario() -> None:
        node, client = world.add_host("node"), world.add_host("client")
        await serve(node)
        await client.run(create_topic())
        acknowledged: dict[int, bytes] = {}
        client.spawn(produce_whatever_happens(world, acknowledged))
        await RandomFaults(world, [node, world.add_host("bystander")], restart).run(8)
        before = len(acknowledged)
        await world.until(lambda: len(acknowledged) > before)
        found = await client.run(read_back(max(acknowledged) + 1))
        assert found.items() >= acknowledged.items()

    async def create_topic() -> None:
        await (await Client.connect()).create_topic()

    async def restart(host: SimulatedHost) -> None:
        if host.name == "node":
            await serve(host)

    for seed in range(10):
        with World(seed) as world:
            world.run(scenario())
