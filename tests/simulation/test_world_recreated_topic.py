"""A topic that is deleted while the disk still syncs it, and made again at once: the new one never loses its folder."""

import asyncio

from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.simulation.test_world_node import Client
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.kafka_connection import KafkaConnection
from tests.simulation.world.served_node import PORT, serve
from tests.simulation.world.world import World

SEEDS = range(10)
ROUNDS = 4
#: Some syncs take much longer than the change of the metadata, which waits for syncs of its own.
SLOW_SYNCS = WorkDelay(minimum_ms=1, maximum_ms=5, slow_probability=0.3, slow_ms=300)


async def make_topics_anew(world: World) -> None:
    writer = await Client.connect()
    admin = await KafkaConnection.open("node", PORT)
    for _ in range(ROUNDS):
        topic = CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
        created = await admin.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert [result.error_code for result in created.topics] == [0]
        await produce_at_last(world, writer, b"waited for")
        abandoned = asyncio.ensure_future(writer.produce(b"abandoned"))
        deleted = await admin.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="topic")]), 6, DeleteTopicsResponse
        )
        assert [result.error_code for result in deleted.responses] == [0]
        await asyncio.gather(abandoned, return_exceptions=True)


async def produce_at_last(world: World, writer: Client, value: bytes) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                assert await writer.produce(value) == 0  # A new log, not what is left of the old one.
                return
            except ConnectionError:
                await world.sleep(0.05)


def test_a_topic_made_again_while_the_old_one_is_synced_works() -> None:
    for seed in SEEDS:
        with World(seed, work_delay=SLOW_SYNCS) as world:
            client, node = world.add_host("client"), world.add_host("node")
            world.run(serve(node))
            world.run(client.run(make_topics_anew(world)))
