"""The client against librdkafka's mock cluster: old versions of everything, and faults on demand."""

from collections.abc import Iterator

import pytest

from quorate.client.admin.groups import OffsetAndMetadata
from quorate.client.errors import PartitionUnavailable
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.protocol.apis import ApiKey
from quorate.records.batch import detach
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.kafka.conftest import OpenClient
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.test_admin import partition_of
from tests.kafka.test_fetch import iterate_each
from tests.kafka.writing import records_of, values, values_of

TOPIC = "mocked"
COUNT = 60


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic(TOPIC, 2)
        cluster.set_leader(TOPIC, 0, 2)
        yield cluster


@pytest.fixture
def client(mock: MockCluster, open_client: OpenClient) -> KafkaClient:
    return open_client(mock.bootstrap)


def fill(client: KafkaClient) -> list[bytes]:
    """One batch for each record, so that there are many requests to disturb."""
    content = values(COUNT)
    batches = (detach(build_batch([Record(Offset(0), 1_700_000_000_000, None, value)])) for value in content)
    produced = list(client.idempotent_producer().send_all(TOPIC, 0, batches))
    assert len(produced) == COUNT
    return content


def test_what_was_produced_is_fetched(client: KafkaClient) -> None:
    """Its ApiVersions above 2 are malformed: the client falls back."""
    content = fill(client)
    assert client.offsets.latest([partition_of(TOPIC)])[partition_of(TOPIC)].offset == COUNT
    assert values_of(records_of(client.fetch_range(TOPIC, 0, 0, COUNT))) == content


@pytest.mark.parametrize("fetch_version", [4, 5, 9, 11])
@pytest.mark.parametrize("produce_version", [3, 7, 9])
def test_old_versions(mock: MockCluster, open_client: OpenClient, fetch_version: int, produce_version: int) -> None:
    mock.limit_versions(ApiKey.FETCH, 0, fetch_version)
    mock.limit_versions(ApiKey.PRODUCE, 0, produce_version)
    client = open_client(mock.bootstrap)
    content = fill(client)
    assert values_of(records_of(client.fetch_range(TOPIC, 0, 0, COUNT, max_bytes=500))) == content


@pytest.mark.parametrize("version", [0, 1, 2, 4, 5, 9])
def test_old_metadata(mock: MockCluster, open_client: OpenClient, version: int) -> None:
    mock.limit_versions(ApiKey.METADATA, 0, version)
    client = open_client(mock.bootstrap)
    content = fill(client)
    assert values_of(records_of(client.fetch_range(TOPIC, 0, 0, COUNT))) == content


def test_leaders_that_move_are_followed(mock: MockCluster, client: KafkaClient) -> None:
    content = fill(client)
    moves = {10: 3, 20: 1, 40: 2}
    nodes, found = set(), []
    for piece in client.fetch_range(TOPIC, 0, 0, COUNT, max_bytes=300):
        nodes.add(int(piece.node_id))
        found += values_of(iterate_each(piece))
        for at in [at for at in moves if at <= len(found)]:
            mock.set_leader(TOPIC, 0, moves.pop(at))
    assert found == content
    assert nodes == {1, 2, 3}
    assert client.leaders_followed == 3


FETCH_ERRORS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


def test_fetch_errors_are_waited_out(mock: MockCluster, client: KafkaClient) -> None:
    content = fill(client)
    found = []
    for number, piece in enumerate(client.fetch_range(TOPIC, 0, 0, COUNT, max_bytes=300)):
        found += values_of(iterate_each(piece))
        if number < len(FETCH_ERRORS):
            mock.push_errors(ApiKey.FETCH, [FETCH_ERRORS[number]])
    assert found == content


def test_produce_errors_lose_and_double_nothing(mock: MockCluster, client: KafkaClient) -> None:
    mock.push_errors(
        ApiKey.PRODUCE,
        [
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ],
    )
    producer = client.idempotent_producer()
    content = values(10)
    for value in content:  # One by one: the mock does not mind a gap in the sequences, as a real broker does.
        producer.send(TOPIC, 0, detach(build_batch([Record(Offset(0), 1_700_000_000_000, None, value)])))
    assert values_of(records_of(client.fetch_range(TOPIC, 0, 0, 10))) == content


def test_metadata_errors_are_tried_again(mock: MockCluster, client: KafkaClient) -> None:
    mock.push_errors(ApiKey.METADATA, [ErrorCode.LEADER_NOT_AVAILABLE] * 3)
    assert client.offsets.latest([partition_of(TOPIC, 1)])[partition_of(TOPIC, 1)].offset == 0


def test_a_broker_that_is_down_for_a_while(mock: MockCluster, client: KafkaClient) -> None:
    content = fill(client)
    found = []
    for number, piece in enumerate(client.fetch_range(TOPIC, 0, 0, COUNT, max_bytes=300)):
        found += values_of(iterate_each(piece))
        if number == 3:
            mock.take_down(2)
            mock.set_leader(TOPIC, 0, 3)
        if number == 6:
            mock.bring_up(2)
            mock.set_leader(TOPIC, 0, 2)
    assert found == content


def test_a_leader_that_stays_down_is_one_error(mock: MockCluster, open_client: OpenClient) -> None:
    client = open_client(mock.bootstrap, retry_timeout_ms=1000)
    fill(client)
    mock.take_down(2)
    with pytest.raises(PartitionUnavailable, match=f"{TOPIC}-0.*leader 2 at ") as caught:
        list(client.fetch_range(TOPIC, 0, 0, COUNT))
    assert str(caught.value.address) in mock.bootstrap


def test_a_slow_broker_is_waited_for(mock: MockCluster, client: KafkaClient) -> None:
    content = fill(client)
    mock.set_round_trip_ms(2, 50)
    assert values_of(records_of(client.fetch_range(TOPIC, 0, 0, COUNT))) == content


def test_the_nearest_replica_is_fetched_from(mock: MockCluster, open_client: OpenClient) -> None:
    fill(open_client(mock.bootstrap))
    mock.set_rack(3, "near")
    mock.set_follower(TOPIC, 0, 3)
    client = open_client(mock.bootstrap, rack="near")
    nodes = {int(piece.node_id) for piece in client.fetch_range(TOPIC, 0, 0, COUNT, max_bytes=500)}
    assert nodes == {3}


def test_a_coordinator_is_found_with_retries(mock: MockCluster, client: KafkaClient) -> None:
    mock.push_errors(ApiKey.FIND_COORDINATOR, [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2)
    mock.push_errors(ApiKey.OFFSET_COMMIT, [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
    client.groups.commit_offsets("group", {partition_of(TOPIC): OffsetAndMetadata(offset=Offset(3))})
