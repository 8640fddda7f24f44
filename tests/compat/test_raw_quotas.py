"""Quotas on the wire: which holds for whom, what a client is told that goes over one, and for how long it is not heard.

Apache Kafka applies a change of quotas some time after it has answered, and so these tests ask until it has.
"""

import itertools
import socket
import time
from collections.abc import Iterator, Mapping

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import alter_client_quotas as alter
from quorate.protocol.messages import create_partitions as grow
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import delete_topics as delete
from quorate.protocol.messages import metadata, produce
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import unique_name
from tests.compat.raw_records import batch, produce_request
from tests.eventually import eventually
from tests.integration.wire_client import WireClient

Entity = Mapping[str, str | None]

#: Of those who have not shown who they are.
ANONYMOUS = "ANONYMOUS"
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
#: A full bucket of one partition a second: eleven samples of a second.
BUCKET = 11
#: Timers may be early by what a clock does not show.
EARLY_MS = 20
#: Loopback addresses that are not the node's own.
LIMITED, FREE = "127.0.0.2", "127.0.0.3"
VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"

_names = itertools.count()


def change(bootstrap: str, entity: Entity, **values: float | None) -> tuple[int, str | None]:
    """The error of the answer, and its message."""
    parts = [alter.RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    request = alter.AlterClientQuotasRequest(entries=[alter.RequestEntryData(entity=parts, ops=ops)])
    with WireClient(bootstrap) as client:
        (entry,) = client.call(request, 1, alter.AlterClientQuotasResponse).entries
    return entry.error_code, entry.error_message


class Limits:
    """Quotas that are taken away at the end of the test."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._set: list[tuple[Entity, str]] = []

    def set(self, entity: Entity, key: str, value: float) -> None:
        assert change(self._bootstrap, entity, **{key: value}) == (0, None)
        self._set.append((entity, key))

    def remove_all(self) -> None:
        for entity, key in self._set:
            change(self._bootstrap, entity, **{key: None})


@pytest.fixture
def limits(bootstrap: str) -> Iterator[Limits]:
    made = Limits(bootstrap)
    yield made
    made.remove_all()


@pytest.fixture
def app(request: pytest.FixtureRequest) -> str:
    """A client id of the test's own."""
    return f"{request.node.name[:40]}-{next(_names)}"


def of(client_id: str) -> Entity:
    return {"client-id": client_id}


def assert_not_heard(client: WireClient, begun: float, throttle_time_ms: int) -> None:
    """The connection is served again after the time that its client was told, and no sooner."""
    client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert (time.monotonic() - begun) * 1000 > throttle_time_ms - EARLY_MS


# controller_mutation_rate


def created(client: WireClient, name: str, count: int, version: int, *, validate_only: bool = False) -> tuple[int, int]:
    """The error of a creation, and for how long the client is told to wait."""
    topic = create.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    request = create.CreateTopicsRequest(topics=[topic], timeout_ms=20_000, validate_only=validate_only)
    answer = client.call(request, version, create.CreateTopicsResponse)
    return answer.topics[0].error_code, answer.throttle_time_ms


def grown(client: WireClient, name: str, count: int, version: int) -> tuple[int, int]:
    topic = grow.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = grow.CreatePartitionsRequest(topics=[topic], timeout_ms=20_000)
    answer = client.call(request, version, grow.CreatePartitionsResponse)
    return answer.results[0].error_code, answer.throttle_time_ms


def deleted(client: WireClient, name: str, version: int) -> tuple[int, int]:
    request = delete.DeleteTopicsRequest(topic_names=[name], timeout_ms=20_000)
    if version >= 6:
        request = delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=name)], timeout_ms=20_000)
    answer = client.call(request, version, delete.DeleteTopicsResponse)
    return answer.responses[0].error_code, answer.throttle_time_ms


def overdraw(bootstrap: str, limits: Limits, app: str, by: int = 1) -> str:
    """Have the client use up its bucket, and more by so many partitions: that long, in seconds, it has to wait.

    Returns a topic that there is, of ``BUCKET + by`` partitions.
    """
    limits.set(of(app), "controller_mutation_rate", 1)

    def is_over() -> str | None:
        name = unique_name(app)
        with WireClient(bootstrap, client_id=app) as client:
            assert created(client, name, BUCKET + by, 7)[0] in (0, THROTTLED)
            error, _ = created(client, unique_name(app), 1, 7)
        return name if error == THROTTLED else None

    return eventually(is_over, "the quota to be applied")


def test_who_is_over_its_rate_of_partitions_gets_no_topic_and_is_not_heard(
    bootstrap: str, limits: Limits, app: str
) -> None:
    overdraw(bootstrap, limits, app, by=2)
    name = unique_name(app)
    with WireClient(bootstrap, client_id=app) as client:
        begun = time.monotonic()
        error, throttle_time_ms = created(client, name, 1, 7)
        assert error == THROTTLED
        assert 0 < throttle_time_ms <= 4000
        assert_not_heard(client, begun, throttle_time_ms)
        assert created(client, name, 1, 7) == (0, 0)


def test_other_clients_are_not_held_to_it(bootstrap: str, limits: Limits, app: str) -> None:
    overdraw(bootstrap, limits, app)
    with WireClient(bootstrap, client_id=f"{app}-other") as client:
        for _ in range(2):
            assert created(client, unique_name(app), BUCKET + 1, 7) == (0, 0)


@pytest.mark.parametrize(("version", "is_strict"), [(4, False), (5, True), (6, True)])
def test_a_deletion_counts_all_partitions_of_its_topic(
    bootstrap: str, limits: Limits, app: str, version: int, is_strict: bool
) -> None:
    name = overdraw(bootstrap, limits, app)
    with WireClient(bootstrap, client_id=app) as client:
        error, throttle_time_ms = deleted(client, name, version)
    assert throttle_time_ms > 0
    if is_strict:
        assert error == THROTTLED
    else:
        assert error == 0
        assert throttle_time_ms > BUCKET * 1000


@pytest.mark.parametrize(("version", "is_strict"), [(2, False), (3, True)])
def test_a_topic_that_grows_counts_the_partitions_that_it_gets(
    bootstrap: str, limits: Limits, app: str, version: int, is_strict: bool
) -> None:
    name = overdraw(bootstrap, limits, app)
    with WireClient(bootstrap, client_id=app) as client:
        error, throttle_time_ms = grown(client, name, BUCKET + 4, version)
    assert error == (THROTTLED if is_strict else 0)
    assert 0 < throttle_time_ms <= (3000 if is_strict else 6000)


def test_older_clients_get_their_topic_and_are_not_heard_afterwards(bootstrap: str, limits: Limits, app: str) -> None:
    overdraw(bootstrap, limits, app)
    with WireClient(bootstrap, client_id=app) as client:
        begun = time.monotonic()
        error, throttle_time_ms = created(client, unique_name(app), 1, 5)
        assert error == 0
        assert 0 < throttle_time_ms <= 4000
        assert_not_heard(client, begun, throttle_time_ms)


def test_what_is_only_checked_counts_too(bootstrap: str, limits: Limits, app: str) -> None:
    overdraw(bootstrap, limits, app)
    with WireClient(bootstrap, client_id=app) as client:
        error, _ = created(client, unique_name(app), 1, 7, validate_only=True)
    assert error == THROTTLED


def test_who_asks_for_a_topic_that_is_missing_is_not_told_of_its_rate(bootstrap: str, limits: Limits, app: str) -> None:
    overdraw(bootstrap, limits, app, by=30)
    name = unique_name(app)
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )
    with WireClient(bootstrap, client_id=app) as client:
        for _ in range(5):
            (topic,) = client.call(request, 12, metadata.MetadataResponse).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            time.sleep(0.1)


# request_percentage


def asked(client: WireClient) -> int:
    """For how long a client that has asked something is told to wait."""
    return client.call(metadata.MetadataRequest(topics=None), 12, metadata.MetadataResponse).throttle_time_ms


def test_who_takes_too_much_time_of_the_node_is_told_and_not_heard(bootstrap: str, limits: Limits, app: str) -> None:
    limits.set(of(app), "request_percentage", 0.001)
    with WireClient(bootstrap, client_id=app) as client:

        def held_back() -> tuple[float, int] | None:
            begun = time.monotonic()
            throttle_time_ms = asked(client)
            return (begun, throttle_time_ms) if throttle_time_ms else None

        begun, throttle_time_ms = eventually(held_back, "the client to be held back")
        assert 0 < throttle_time_ms <= 1000
        assert_not_heard(client, begun, throttle_time_ms)


def test_other_clients_may_take_the_time_that_they_need(bootstrap: str, limits: Limits, app: str) -> None:
    limits.set(of(app), "request_percentage", 0.001)
    with WireClient(bootstrap, client_id=app) as client:
        eventually(lambda: asked(client), "the client to be held back")
    with WireClient(bootstrap, client_id=f"{app}-other") as other:
        assert [asked(other) for _ in range(20)] == [0] * 20


def test_who_writes_is_held_to_its_time_too(bootstrap: str, limits: Limits, app: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    limits.set(of(app), "request_percentage", 0.001)
    with WireClient(bootstrap, client_id=app) as client:
        assert 0 < eventually(lambda: written(client, topic), "the client to be held back") <= 1000


def test_an_answer_that_takes_its_time_tells_of_it_too(bootstrap: str, limits: Limits, app: str) -> None:
    limits.set(of(app), "request_percentage", 0.001)
    with WireClient(bootstrap, client_id=app) as client:
        waits = (created(client, unique_name(app), 1, 7) for _ in itertools.count())
        assert 0 < eventually(lambda: next(waits)[1], "the client to be held back") <= 1000


def test_the_longer_of_two_times_counts(bootstrap: str, limits: Limits, app: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    limits.set(of(app), "request_percentage", 0.001)
    with WireClient(bootstrap, client_id=app) as client:
        eventually(lambda: asked(client), "the client to be held back")
        limits.set(of(app), "producer_byte_rate", 100)

    def waits_for_its_bytes() -> int | None:
        with WireClient(bootstrap, client_id=app) as client:
            wait_ms = written(client, topic)
        return wait_ms if wait_ms > 1000 else None

    assert eventually(waits_for_its_bytes, "the client to be held back for what it writes")


# connection_creation_rate


def knock(bootstrap: str, address: str) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), 30, source_address=(address, 0))
    client.sendall(VERSIONS)
    return client


def is_answered(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except ConnectionError:
        return False


def test_an_address_makes_no_more_connections_than_its_rate_and_others_as_many_as_they_like(
    bootstrap: str, limits: Limits
) -> None:
    limits.set({"ip": LIMITED}, "connection_creation_rate", 2)
    # A window's worth, of ten seconds, comes at once.
    at_once = 20

    def answered() -> tuple[int, float] | None:
        begun = time.monotonic()
        clients = [knock(bootstrap, LIMITED) for _ in range(2 * at_once)]
        count = sum(map(is_answered, clients))
        elapsed_s = time.monotonic() - begun
        for client in clients:
            client.close()
        return (count, elapsed_s) if count < 2 * at_once else None

    count, elapsed_s = eventually(answered, "the quota to be applied")
    assert count <= at_once + 2 * elapsed_s + 1

    free = [knock(bootstrap, FREE) for _ in range(2 * at_once)]
    assert all(map(is_answered, free))
    for client in free:
        client.close()


def test_the_default_of_addresses_is_for_all_that_have_none_of_their_own(bootstrap: str, limits: Limits) -> None:
    limits.set({"ip": FREE}, "connection_creation_rate", 10_000)
    limits.set({"ip": None}, "connection_creation_rate", 1)

    def some_are_not_answered() -> bool:
        clients = [knock(bootstrap, "127.0.0.4") for _ in range(20)]
        outcomes = [is_answered(client) for client in clients]
        for client in clients:
            client.close()
        return not all(outcomes)

    try:
        eventually(some_are_not_answered, "the quota to be applied")
        free = [knock(bootstrap, FREE) for _ in range(40)]
        assert all(map(is_answered, free))
    finally:
        change(bootstrap, {"ip": None}, connection_creation_rate=None)


# Which quota holds


def written(client: WireClient, topic: str) -> int:
    """For how long a client that has written some kilobytes is told to wait."""
    answer = client.call(produce_request(topic, batch(600)), 8, produce.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


def test_the_most_specific_of_all_quotas_holds(bootstrap: str, limits: Limits, app: str, topic: str) -> None:
    """From the least specific on, each is the opposite of the one before it."""
    ConfluentClient(bootstrap).create_topic(topic)
    levels: list[Entity] = [
        {"client-id": None},
        {"client-id": app},
        {"user": None},
        {"user": None, "client-id": None},
        {"user": None, "client-id": app},
        {"user": ANONYMOUS},
        {"user": ANONYMOUS, "client-id": None},
        {"user": ANONYMOUS, "client-id": app},
    ]

    def is_held_back() -> bool:
        with WireClient(bootstrap, client_id=app) as client:
            return written(client, topic) > 0

    for number, level in enumerate(levels):
        expected = number % 2 == 0
        limits.set(level, "producer_byte_rate", 100 if expected else 10**9)
        eventually(lambda expected=expected: is_held_back() is expected, f"the quota of {level} to hold")  # type: ignore[misc]


def test_all_clients_of_a_user_share_its_quota(bootstrap: str, limits: Limits, app: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    limits.set({"user": ANONYMOUS}, "producer_byte_rate", 100)

    def is_held_back(client_id: str) -> bool:
        with WireClient(bootstrap, client_id=client_id) as client:
            return written(client, topic) > 0

    eventually(lambda: is_held_back(app), "the user to be held back")
    # One that has written nothing yet, and less than a whole window.
    assert is_held_back(f"{app}-other")


# What is refused


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({"client-id": "app"}, "producer_byte_rate", 0.0),
        ({"client-id": "app"}, "consumer_byte_rate", -1.0),
        ({"client-id": "app"}, "producer_byte_rate", 10.5),
        ({"client-id": "app"}, "request_percentage", 0.0),
        ({"user": "alice"}, "controller_mutation_rate", -0.5),
        ({"user": "alice"}, "connection_creation_rate", 5.0),
        ({"user": "alice"}, "no_such_rate", 5.0),
        ({"user": ""}, "producer_byte_rate", 5.0),
        ({"ip": LIMITED}, "producer_byte_rate", 5.0),
        ({"ip": LIMITED}, "connection_creation_rate", 0.5),
        ({"ip": LIMITED}, "connection_creation_rate", 2.0**31),
        ({"ip": "no.such.host.invalid"}, "connection_creation_rate", 5.0),
        ({"ip": "300.0.0.1"}, "connection_creation_rate", 5.0),
        ({"ip": LIMITED, "user": "alice"}, "connection_creation_rate", 5.0),
        ({"ip": LIMITED, "client-id": None}, "connection_creation_rate", 5.0),
        ({"planet": "earth"}, "producer_byte_rate", 5.0),
        ({}, "producer_byte_rate", 5.0),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(bootstrap: str, entity: Entity, key: str, value: float) -> None:
    error, message = change(bootstrap, entity, **{key: value})
    assert error == ErrorCode.INVALID_REQUEST
    assert message


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({"ip": "localhost"}, "connection_creation_rate", 1000.0),
        ({"ip": "2001:db8::7"}, "connection_creation_rate", 1.0),
        ({"user": "CN=alice,O=Example Ltd.,C=DE"}, "request_percentage", 2500.25),
        ({"user": "alice/ü %", "client-id": None}, "controller_mutation_rate", 0.001),
    ],
)
def test_a_quota_that_is_odd_is_not(bootstrap: str, limits: Limits, entity: Entity, key: str, value: float) -> None:
    limits.set(entity, key, value)
