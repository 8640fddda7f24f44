"""Batches and Produce requests by hand, over a plain connection."""

import time

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.compat.raw_connection import RawConnection
from tests.eventually import eventually


def batch(
    count: int,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = 0,
    base_sequence: int = -1,
    *,
    is_transactional: bool = False,
) -> bytes:
    """Records of this moment: Apache Kafka forgets a producer at a restart by the age of its records."""
    now_ms = int(time.time() * 1000)
    records = [Record(Offset(each), now_ms, None, b"value") for each in range(count)]
    epoch = NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else ProducerEpoch(producer_epoch)
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=records),))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(data,))


def produce(
    connection: RawConnection, topic: str, records: bytes, *, partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    request = produce_request(topic, records, partition=partition, acks=acks)
    return connection.ask(request, 8, ProduceResponse).responses[0].partition_responses[0]


def new_producer_id(connection: RawConnection) -> ProducerId:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def answer() -> InitProducerIdResponse | None:
        response = connection.ask(request, 4, InitProducerIdResponse)
        return response if response.error_code == ErrorCode.NONE else None

    return ProducerId(eventually(answer, "a producer id").producer_id)
