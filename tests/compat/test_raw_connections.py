"""What a node does with connections that misbehave: it ends them, and goes on serving all others."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.compat.clients.client import Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import NodeUnderTest
from tests.compat.raw_connection import RawConnection, encoded_request

API_VERSIONS, PRODUCE, FETCH, METADATA, CREATE_TOPICS, NO_SUCH_API = 18, 0, 1, 3, 19, 4242
IDLE_MS = 2000


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.fixture
def bystander(bootstrap: str) -> Iterator[RawConnection]:
    """A connection that does nothing wrong, opened before and used after."""
    with RawConnection(bootstrap) as opened:
        yield opened
        assert serves(opened)


def test_unsupported_version_of_api_versions_is_answered_in_version_0(connection: RawConnection) -> None:
    """So that a client newer than the node can ask again (KIP-511)."""
    connection.send_frame(struct.pack(">hhihb", API_VERSIONS, 99, 77, -1, 0))

    frame = connection.receive_frame()

    correlation_id, error_code, count = struct.unpack(">ihi", frame[:10])
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10 : 10 + 6 * count])}
    assert (correlation_id, error_code) == (77, ErrorCode.UNSUPPORTED_VERSION)
    assert len(frame) == 10 + 6 * count
    low, high = ranges[API_VERSIONS]
    assert low == 0
    named = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    assert connection.ask(named, high, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("api_key", "api_version"),
    [(NO_SUCH_API, 0), (-1, 0), (METADATA, 99), (METADATA, -1), *((FETCH, old) for old in range(4))],
)
def test_unknown_api_or_version_never_loses_its_correlation_id(
    connection: RawConnection, bystander: RawConnection, api_key: int, api_version: int
) -> None:
    """Versions of Fetch that want old message formats are among those: nobody converts records down any more.

    Apache Kafka ends the connection instead; both tell the client, and neither touches another connection.
    """
    connection.send_frame(struct.pack(">hhih", api_key, api_version, 77, -1) + bytes(40))

    try:
        frame = connection.receive_frame()
    except ConnectionError:
        return
    assert struct.unpack(">ih", frame) == (77, ErrorCode.UNSUPPORTED_VERSION)


def test_requests_in_flight_are_answered_in_their_order(connection: RawConnection, bootstrap: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    waits_long = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=(FetchTopic(topic=topic, partitions=(FetchPartition(partition_max_bytes=1000),)),),
    )
    sent = []
    for _ in range(2):
        sent.append(connection.send(waits_long, 11))
        sent += [connection.send(MetadataRequest(topics=()), version) for version in (1, 9)]
        sent += [connection.send(ApiVersionsRequest(), version) for version in range(5)]

    assert [connection.receive_correlation_id() for _ in sent] == sent


def test_request_that_arrives_byte_by_byte_is_answered(connection: RawConnection) -> None:
    for byte in encoded_request(MetadataRequest(topics=()), 9, correlation_id=5):
        connection.send_bytes(bytes([byte]))

    assert connection.receive_correlation_id() == 5


@pytest.mark.parametrize("size", [2**31 - 1, 200_000_000, -1, -(2**31), 0, 3], ids=str)
def test_frame_of_an_impossible_size_ends_the_connection_and_no_other(
    connection: RawConnection, bystander: RawConnection, size: int
) -> None:
    connection.send_bytes(struct.pack(">i", size) + bytes(64))

    assert connection.is_closed_by_node()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        bytes.fromhex("160301020001"),
        bytes(range(256)) * 4,
        encoded_request(MetadataRequest(topics=()), 9)[:20] + b"\xff" * 40,
    ],
    ids=["HTTP", "TLS", "every byte", "broken request"],
)
def test_garbage_leaves_the_node_serving(bootstrap: str, bystander: RawConnection, garbage: bytes) -> None:
    with RawConnection(bootstrap) as connection:
        connection.send_bytes(garbage)
        assert serves(bystander)
    with RawConnection(bootstrap) as newcomer:
        assert serves(newcomer)


@pytest.mark.parametrize(
    ("api_key", "api_version", "body"),
    [
        (METADATA, 1, struct.pack(">i", 2**31 - 1)),
        (METADATA, 9, b"\x00" + b"\xff\xff\xff\xff\x0f"),
        (CREATE_TOPICS, 2, struct.pack(">i", 2**31 - 1)),
        (CREATE_TOPICS, 7, b"\x00" + b"\xff\xff\xff\xff\x0f"),
        (FETCH, 4, struct.pack(">iiiibi", -1, 0, 1, 1000, 0, 2**31 - 1)),
        (PRODUCE, 3, struct.pack(">hhii", -1, 1, 1000, 2**31 - 1)),
    ],
)
def test_tiny_frame_that_declares_a_huge_array_takes_no_memory(
    node: NodeUnderTest, bystander: RawConnection, api_key: int, api_version: int, body: bytes
) -> None:
    before = peak_memory_kib(node.pid)
    with RawConnection(node.bootstrap) as connection:
        connection.send_frame(struct.pack(">hhih", api_key, api_version, 1, -1) + body)
        assert connection.is_closed_by_node()

    assert peak_memory_kib(node.pid) - before < 100_000


def test_reader_that_does_not_read_keeps_nobody_waiting(bootstrap: str, bystander: RawConnection, topic: str) -> None:
    client = ConfluentClient(bootstrap)
    client.create_topic(topic)
    writer = client.writer()
    for _ in range(4):
        writer.write(topic, [Record(None, bytes(900_000), 1_735_732_800_000)])
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=4_000_000,
        topics=(FetchTopic(topic=topic, partitions=(FetchPartition(partition_max_bytes=4_000_000),)),),
    )

    with RawConnection(bootstrap, receive_buffer_bytes=4096) as slow:
        sent = [slow.send(fetch, 11) for _ in range(20)]
        for _ in range(50):
            assert serves(bystander)
        writer.write(topic, [Record(None, b"still written", 1_735_732_800_000)])
        assert [slow.receive_correlation_id() for _ in sent] == sent


@pytest.mark.parametrize("own_node", [{"connections.max.idle.ms": IDLE_MS}], indirect=True)
def test_idle_connection_ends_after_its_time_and_a_busy_one_does_not(own_node: NodeUnderTest) -> None:
    with RawConnection(own_node.bootstrap) as idle, RawConnection(own_node.bootstrap) as busy:
        assert serves(idle)
        last_used = time.monotonic()
        while not idle.is_closed_by_node(within_s=0.1):
            assert serves(busy)

        # The node's clock ticks more coarsely than this one.
        assert time.monotonic() - last_used >= IDLE_MS / 1000 * 0.9
        assert serves(busy)


def serves(connection: RawConnection) -> bool:
    response = connection.ask(MetadataRequest(topics=()), 1, MetadataResponse)
    return [broker.node_id for broker in response.brokers] == [7]


def peak_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak)
