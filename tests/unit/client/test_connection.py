"""One connection: versions agreed on, answers matched to requests, threads sharing it, and every way it can end."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from quorate.client.config import ClientConfig
from quorate.client.connections.connection import Connection, ReceiveBuffers
from quorate.client.connections.pool import Connector
from quorate.client.errors import BrokerUnreachable, ConnectionLost, Disconnected, RequestTimedOut, UnsupportedApi
from quorate.client.retries import MonotonicClock, SystemMonotonicClock
from quorate.kernel.address import Address
from quorate.protocol.apis import ApiKey
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import RequestHeader, encode_response, encode_unsupported_api_versions
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.fetch import FetchRequest
from quorate.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from quorate.protocol.schema import Request
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import SILENCE, Answer, FakeBroker, Handler

APIS = [
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2),
    ApiVersion(api_key=ApiKey.LIST_GROUPS, min_version=0, max_version=2),
]

StartBroker = Callable[..., FakeBroker]


def versions(request: Request, header: RequestHeader) -> Answer:
    return ApiVersionsResponse(api_keys=APIS)


def groups(request: Request, header: RequestHeader) -> Answer:
    """Names the request, so that an answer can be told from another's."""
    return ListGroupsResponse(groups=[ListedGroup(group_id=str(header.correlation_id))])


@pytest.fixture
def start() -> Iterator[StartBroker]:
    started: list[FakeBroker] = []

    def start_one(**handlers: Handler) -> FakeBroker:
        broker = FakeBroker(
            7,
            {
                ApiVersionsRequest: handlers.get("api_versions", versions),
                ListGroupsRequest: handlers.get("list_groups", groups),
            },
        )
        started.append(broker)
        return broker

    yield start_one
    for broker in started:
        broker.close()


def connector(clock: MonotonicClock | None = None, **settings: int) -> Connector:
    config = ClientConfig(bootstrap_servers=("a:1",), **settings)  # type: ignore[arg-type]
    return Connector(config, ReceiveBuffers(), clock or SystemMonotonicClock())


def ask_groups(connection: Connection) -> str:
    return connection.ask(ListGroupsRequest(), ListGroupsResponse, 2).groups[0].group_id


def test_the_highest_version_that_both_know_is_chosen(start: StartBroker) -> None:
    connection = connector().open(start().address)
    assert connection.versions.choose(ListGroupsRequest) == 2
    assert connection.versions.choose(ListGroupsRequest, ceiling=1) == 1
    with pytest.raises(UnsupportedApi, match=r"127\.0\.0\.1:\d+ does not support Fetch"):
        connection.versions.choose(FetchRequest)


def only_up_to(version: int, otherwise: Callable[[RequestHeader], Answer]) -> Handler:
    def answer(request: Request, header: RequestHeader) -> Answer:
        return versions(request, header) if header.api_version <= version else otherwise(header)

    return answer


def refusal(header: RequestHeader) -> bytes:
    response = ApiVersionsResponse(error_code=35, api_keys=APIS)
    return b"".join(encode_unsupported_api_versions(header.correlation_id, response))


def bare_refusal(header: RequestHeader) -> bytes:
    response = ApiVersionsResponse(error_code=35)
    return b"".join(encode_unsupported_api_versions(header.correlation_id, response))


def nonsense(header: RequestHeader) -> bytes:
    """A flexible answer where the broker forgot the tagged fields: it ends too early."""
    whole = b"".join(encode_response(header.correlation_id, ApiVersionsResponse(api_keys=APIS), header.api_version))
    body = whole[4:-2]
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("oldest", [2, 0])
@pytest.mark.parametrize("otherwise", [refusal, bare_refusal, nonsense, lambda _: None])
def test_older_words_are_tried_where_the_broker_does_not_understand(
    start: StartBroker, oldest: int, otherwise: Callable[[RequestHeader], Answer]
) -> None:
    broker = start(api_versions=only_up_to(oldest, otherwise))
    connecting = connector()
    assert ask_groups(connecting.open(broker.address))
    attempts = len(broker.seen)
    ask_groups(connecting.open(broker.address))
    # What was understood is remembered: the second connection goes straight to it.
    assert len(broker.seen) - attempts <= 3
    asked = [version for request, version in broker.seen[attempts:] if isinstance(request, ApiVersionsRequest)]
    assert asked[-1] <= oldest


def test_a_broker_that_understands_nothing_is_told(start: StartBroker) -> None:
    with pytest.raises(Disconnected, match="closed"):
        connector().open(start(api_versions=lambda request, header: None).address)


def test_answers_find_their_requests_in_flight(start: StartBroker) -> None:
    connection = connector().open(start().address)
    pending = [connection.send(ListGroupsRequest(), ListGroupsResponse, 2) for _ in range(5)]
    # Waiting for the last one first reads the others on the way.
    answers = {one.correlation_id: connection.wait(one).groups[0].group_id for one in reversed(pending)}
    assert answers == {one.correlation_id: str(one.correlation_id) for one in pending}
    assert connection.in_flight == 0


def test_threads_share_a_connection(start: StartBroker) -> None:
    connection = connector().open(start().address)
    wrong: list[str] = []

    def work() -> None:
        for _ in range(50):
            pending = connection.send(ListGroupsRequest(), ListGroupsResponse, 2)
            answered = connection.wait(pending).groups[0].group_id
            if answered != str(pending.correlation_id):
                wrong.append(answered)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []


def test_an_answer_that_nobody_wants_any_more_is_thrown_away(start: StartBroker) -> None:
    connection = connector().open(start().address)
    unwanted = connection.send(ListGroupsRequest(), ListGroupsResponse, 2, pooled=True)
    connection.release(unwanted)
    wanted = connection.send(ListGroupsRequest(), ListGroupsResponse, 2)
    assert connection.wait(wanted).groups[0].group_id == str(wanted.correlation_id)
    assert unwanted.buffer is None


def test_a_broker_that_does_not_listen_is_named() -> None:
    with pytest.raises(BrokerUnreachable, match=r"cannot connect to 127\.0\.0\.1:1: "):
        connector().open(Address("127.0.0.1", 1))


def test_a_closed_connection_is_named_with_its_address(start: StartBroker) -> None:
    broker = start(list_groups=lambda request, header: None)
    connection = connector().open(broker.address)
    with pytest.raises(ConnectionLost, match=f"lost the connection to {broker.address}: the broker closed it"):
        ask_groups(connection)
    assert not connection.is_open


def test_a_request_without_an_answer_times_out_and_ends_the_connection(start: StartBroker) -> None:
    broker = start(list_groups=lambda request, header: SILENCE)
    connection = connector(request_timeout_ms=50).open(broker.address)
    other = connection.send(ListGroupsRequest(), ListGroupsResponse, 2, timeout_ms=60_000)
    with pytest.raises(RequestTimedOut, match=f"{broker.address} did not answer ListGroups within 50 ms"):
        ask_groups(connection)
    with pytest.raises(ConnectionLost):
        connection.wait(other)
    with pytest.raises(ConnectionLost):
        connection.send(ListGroupsRequest(), ListGroupsResponse, 2)


def test_an_answer_that_lay_in_the_socket_for_long_is_not_late(start: StartBroker) -> None:
    """The caller of a range writes a piece for minutes, while the next one is there."""
    clock = FakeClock()
    connection = connector(clock).open(start().address)
    pending = connection.send(ListGroupsRequest(), ListGroupsResponse, 2)
    clock.advance(600_000)
    assert connection.wait(pending).groups[0].group_id == str(pending.correlation_id)


def test_an_answer_to_another_request_ends_the_connection(start: StartBroker) -> None:
    """Responses out of request order on one connection."""

    def answer(request: Request, header: RequestHeader) -> Answer:
        return b"".join(encode_response(header.correlation_id + 1, ListGroupsResponse(), header.api_version))

    connection = connector().open(start(list_groups=answer).address)
    with pytest.raises(ConnectionLost, match="answered request"):
        ask_groups(connection)


def test_an_answer_that_cannot_be_read_ends_the_connection(start: StartBroker) -> None:
    def answer(request: Request, header: RequestHeader) -> Answer:
        return struct.pack(">iih", 6, header.correlation_id, 0)

    connection = connector().open(start(list_groups=answer).address)
    with pytest.raises(ProtocolError):
        ask_groups(connection)
    assert not connection.is_open


@pytest.mark.parametrize(
    ("start_bytes", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request", "which no Kafka broker does"),
        (b"\x15\x03\x03\x00\x02\x02\x50\x00", "it speaks TLS"),
        (struct.pack(">ii", -1, 0), "frame of -1 bytes"),
    ],
)
def test_what_is_no_kafka_broker_is_told(start: StartBroker, start_bytes: bytes, sentence: str) -> None:
    connection = connector().open(start(list_groups=lambda request, header: start_bytes).address)
    with pytest.raises(ConnectionLost, match=sentence):
        ask_groups(connection)


def test_closing_wakes_who_waits(start: StartBroker) -> None:
    asked = threading.Event()

    def answer(request: Request, header: RequestHeader) -> Answer:
        asked.set()
        return SILENCE

    connection = connector().open(start(list_groups=answer).address)
    failures: list[Exception] = []

    def wait() -> None:
        try:
            ask_groups(connection)
        except ConnectionLost as error:
            failures.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert asked.wait(10)
    connection.close()
    waiter.join(10)
    assert len(failures) == 1


def test_a_broker_that_closes_without_a_word_may_be_one_with_tls() -> None:
    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connected, _ = listener.accept()
                connected.recv(1 << 16)
                connected.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with pytest.raises(ConnectionLost, match="closed it without a word, as a listener with TLS does"):
            connector().open(Address("127.0.0.1", listener.getsockname()[1]))
        listener.shutdown(socket.SHUT_RDWR)
