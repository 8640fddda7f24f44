"""Produce without acks, refused: the connection ends, and where it has ended already nothing has failed."""

import asyncio
import logging

import pytest

from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.transport.connection import CloseConnection
from tests.simulation.simulated_node import settle
from tests.unit.broker.guarded_node import World, origin, play

PRODUCER = ProducerId(9)


def of_an_unknown_producer() -> ProduceRequest:
    record = Record(0, 1_700_000_000_000, b"k", b"v")  # type: ignore[arg-type]
    records = build_batch(
        [record],
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    topic = TopicProduceData(name="open", partition_data=[data])
    return ProduceRequest(transactional_id="unknown", acks=0, timeout_ms=1_000, topic_data=[topic])


def test_a_refused_part_of_a_transaction_ends_the_connection() -> None:
    async def scenario(world: World) -> None:
        world.node.log_in(origin("admin"))
        with pytest.raises(CloseConnection, match="was refused"):
            await world.node.finish(world.node.send(of_an_unknown_producer(), 9))

    play(scenario)


def test_a_client_that_has_gone_meanwhile_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.node.log_in(origin("admin"))
        before = asyncio.get_running_loop().create_future()
        turns = world.node.node.dispatch.services.producer_turns
        first = turns.run(PRODUCER, lambda: before)
        reply = world.node.send(of_an_unknown_producer(), 9)
        await settle()
        assert reply.cancel()
        await settle()
        before.set_result(None)
        await first
        await settle()

    play(scenario)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
