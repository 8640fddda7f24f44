"""Produce and Fetch by hand: refusals, idempotence by sequence number, old message formats."""

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.frames import decode_response
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from quorate.records.batch import Compression
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection
from tests.compat.raw_records import batch, new_producer_id, produce, produce_request
from tests.eventually import eventually
from tests.unit.records.test_legacy import message, wrapper

NO_SUCH_ID = UUID("00000000-0000-4000-8000-000000000001")


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.fixture
def created(bootstrap: str, topic: str) -> str:
    """The name of a topic with two partitions, which already have a leader."""
    ConfluentClient(bootstrap).create_topic(topic, partitions=2)
    with RawConnection(bootstrap) as connection:
        partitions = [FetchPartition(partition=each) for each in (0, 1)]
        eventually(lambda: errors(fetch(connection, topic, partitions)) == [ErrorCode.NONE] * 2, "leaders")
    return topic


def test_write_without_acknowledgement_gets_no_answer(connection: RawConnection, created: str) -> None:
    connection.send(produce_request(created, batch(1), acks=0), 8)
    next_id = connection.send(ApiVersionsRequest(), 0)

    assert connection.receive_correlation_id() == next_id
    assert produce(connection, created, batch(1)).base_offset == 1


def test_write_without_acknowledgement_that_is_refused_ends_its_connection(bootstrap: str, topic: str) -> None:
    with RawConnection(bootstrap) as connection:
        connection.send(produce_request(topic, batch(1), acks=0), 8)

        assert connection.is_closed_by_node()


def test_batch_with_a_wrong_checksum_is_refused_and_not_stored(connection: RawConnection, created: str) -> None:
    damaged = bytearray(batch(1))
    damaged[-1] ^= 0xFF

    assert produce(connection, created, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE

    assert produce(connection, created, batch(1)).base_offset == 0


def test_more_than_one_batch_for_a_partition_is_refused(connection: RawConnection, created: str) -> None:
    refused = produce(connection, created, batch(1) + batch(1))

    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert produce(connection, created, batch(1)).base_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_format_is_refused_and_not_stored(connection: RawConnection, created: str, magic: int) -> None:
    old = message(0, b"old", magic=magic)
    for records in (old, wrapper(0, old, Compression.GZIP, magic=magic)):
        assert produce(connection, created, records).error_code == ErrorCode.INVALID_RECORD

    assert produce(connection, created, batch(1)).base_offset == 0


@pytest.mark.parametrize("acks", [2, -2])
def test_number_of_acknowledgements_that_does_not_exist_is_refused(
    connection: RawConnection, created: str, acks: int
) -> None:
    assert produce(connection, created, batch(1), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_write_in_a_version_that_is_only_offered_is_refused(
    connection: RawConnection, created: str, version: int
) -> None:
    """Offered, or librdkafka would not compress; Apache Kafka ends the connection."""
    connection.send(produce_request(created, batch(1), acks=1), version)
    try:
        _, response = decode_response(ProduceResponse, connection.receive_frame(), version)
    except ConnectionError:
        return
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_write_to_what_does_not_exist_is_refused(connection: RawConnection, created: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, f"{created}.no", batch(1)).error_code == unknown
    assert produce(connection, created, batch(1), partition=2).error_code == unknown
    by_id = TopicProduceData(topic_id=NO_SUCH_ID, partition_data=(PartitionProduceData(records=batch(1)),))
    answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(by_id,)), 13, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_retry_of_an_idempotent_write_gets_the_same_offset_and_no_second_copy(
    connection: RawConnection, created: str
) -> None:
    producer_id = new_producer_id(connection)
    batches = [batch(2, producer_id=producer_id, base_sequence=sequence) for sequence in range(0, 10, 2)]
    offsets = [produce(connection, created, each).base_offset for each in batches]

    assert offsets == [0, 2, 4, 6, 8]
    for again, offset in zip(batches, offsets, strict=True):
        retried = produce(connection, created, again)
        assert (retried.error_code, retried.base_offset) == (ErrorCode.NONE, offset)
    assert produce(connection, created, batch(1)).base_offset == 10


def test_a_producer_that_is_not_known_starts_anywhere_and_what_comes_before_is_refused_for_good(
    connection: RawConnection, created: str
) -> None:
    """A Quorate leader of a new topic waits a little first, for what may have come before it knew of the topic."""
    producer_id = new_producer_id(connection)
    first = batch(2, producer_id=producer_id, base_sequence=7)
    eventually(lambda: produce(connection, created, first).error_code == ErrorCode.NONE, "the batch to be taken")

    refused = produce(connection, created, batch(1, producer_id=producer_id, base_sequence=0))

    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_in_the_sequence_of_an_idempotent_producer_is_refused(connection: RawConnection, created: str) -> None:
    producer_id = new_producer_id(connection)
    produce(connection, created, batch(1, producer_id=producer_id, base_sequence=0))

    refused = produce(connection, created, batch(1, producer_id=producer_id, base_sequence=5))

    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(connection, created, batch(1, producer_id=producer_id, base_sequence=1)).base_offset == 1


def test_producer_with_an_old_epoch_is_refused(connection: RawConnection, created: str) -> None:
    producer_id = new_producer_id(connection)
    produce(connection, created, batch(1, producer_id=producer_id, producer_epoch=3, base_sequence=0))

    refused = produce(connection, created, batch(1, producer_id=producer_id, producer_epoch=2, base_sequence=0))

    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_fetch_gives_one_whole_batch_however_small_the_limit(connection: RawConnection, created: str) -> None:
    """Or a consumer would never get past a large batch (KIP-74)."""
    large = batch(50)
    produce(connection, created, large)

    for version in range(4, 13):
        [fetched] = fetch(connection, created, [FetchPartition(partition_max_bytes=1)], version=version, max_bytes=1)
        assert len(record_bytes(fetched)) == len(large)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (50, 50)


def test_fetch_refuses_with_the_error_that_tells_the_client_what_to_do(connection: RawConnection, created: str) -> None:
    produce(connection, created, batch(3))
    wanted = {
        ErrorCode.NONE: FetchPartition(fetch_offset=3),
        ErrorCode.OFFSET_OUT_OF_RANGE: FetchPartition(fetch_offset=4),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FetchPartition(partition=9),
        ErrorCode.UNKNOWN_LEADER_EPOCH: FetchPartition(current_leader_epoch=99),
    }
    for error, partition in wanted.items():
        [answer] = fetch(connection, created, [partition])
        assert answer.error_code == error
    by_id = FetchTopic(topic_id=NO_SUCH_ID, partitions=(FetchPartition(),))
    response = connection.ask(FetchRequest(topics=(by_id,)), 13, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def fetch(
    connection: RawConnection,
    topic: str,
    partitions: Sequence[FetchPartition],
    *,
    version: int = 11,
    max_bytes: int = 1_000_000,
) -> Sequence[PartitionData]:
    request = FetchRequest(min_bytes=1, max_bytes=max_bytes, topics=(FetchTopic(topic=topic, partitions=partitions),))
    return connection.ask(request, version, FetchResponse).responses[0].partitions


def errors(partitions: Sequence[PartitionData]) -> list[int]:
    return [each.error_code for each in partitions]


def record_bytes(fetched: PartitionData) -> bytes:
    assert isinstance(fetched.records, bytes | memoryview)
    return bytes(fetched.records)
