"""Requests that no stock client sends, or whose answers none of them shows: every version, and corner cases."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from msgspec.structs import replace

from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import find_api
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_response
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.messages.produce import ProduceRequest
from quorate.protocol.schema import Request
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection, encoded_request
from tests.eventually import eventually

NO_SUCH_ID = UUID("00000000-0000-4000-8000-000000000001")
ANY = 1
# What clients ask of a broker without transactions or security.
CLIENT_APIS = [*range(4), *range(8, 17), *range(18, 24), *range(29, 36), 37, 42, 44, 47, 60, 61, 75]


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.mark.parametrize("api_key", CLIENT_APIS)
def test_every_version_that_is_offered_is_answered(connection: RawConnection, api_key: int) -> None:
    """Whatever the answer to an empty request says, it must be one, and the connection must go on."""
    offered = {each.api_key: each for each in connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys}
    if api_key not in offered:
        pytest.skip("the node does not offer this API")
    api = find_api(api_key)
    assert api is not None

    for version in range(max(offered[api_key].min_version, api.min_version), offered[api_key].max_version + 1):
        if api.name == "Produce" and version < 3:
            continue  # Offered for librdkafka's sake, and refused.
        request = empty_request(api.request_type)
        correlation_id = connection.send(request, version)
        try:
            answered_id, _ = decode_response(api.response_type, connection.receive_frame(), version)
        except (ProtocolError, ConnectionError) as error:
            pytest.fail(f"{api.name} version {version}: {error}")
        assert answered_id == correlation_id


def test_nothing_newer_than_the_definitions_is_offered(connection: RawConnection) -> None:
    for each in connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys:
        api = find_api(each.api_key)
        assert api is not None
        assert each.max_version <= api.max_version


def test_bytes_after_a_request_are_passed_over(connection: RawConnection) -> None:
    """librdkafka sends three too many when it asks for all topics."""
    frame = encoded_request(MetadataRequest(topics=None), 9, correlation_id=5)[4:]

    connection.send_frame(frame + bytes(3))

    assert connection.receive_correlation_id() == 5


def test_all_topics_are_asked_for_by_an_empty_list_first_and_by_null_later(
    connection: RawConnection, bootstrap: str, topic: str
) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    eventually(lambda: topic in names(connection, MetadataRequest(topics=None), 1), "the topic")

    assert topic in names(connection, MetadataRequest(topics=()), 0)
    for version in range(1, 14):
        assert topic in names(connection, MetadataRequest(topics=None), version)
        assert names(connection, MetadataRequest(topics=()), version) == []


def test_topic_is_found_by_its_id(connection: RawConnection, bootstrap: str, topic: str) -> None:
    topic_id = created_topic_id(connection, topic)
    wanted = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, NO_SUCH_ID)]

    def found() -> list[tuple[str | None, UUID, int]]:
        answer = connection.ask(MetadataRequest(topics=wanted), 12, MetadataResponse)
        return sorted(((each.name, each.topic_id, each.error_code) for each in answer.topics), key=lambda each: each[2])

    expected = [(topic, topic_id, ErrorCode.NONE), (None, NO_SUCH_ID, ErrorCode.UNKNOWN_TOPIC_ID)]
    eventually(lambda: found() == expected, "the topic by its id")


def test_topic_is_not_created_by_who_does_not_want_it(connection: RawConnection, topic: str) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)

    for _ in range(2):
        [answer] = connection.ask(request, 9, MetadataResponse).topics
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_named_twice_in_one_request_is_refused(connection: RawConnection, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)

    answer = connection.ask(CreateTopicsRequest(topics=(wanted, wanted)), 5, CreateTopicsResponse)

    assert {(each.name, each.error_code) for each in answer.topics} == {(topic, ErrorCode.INVALID_REQUEST)}


def test_defaults_of_the_cluster_apply_where_a_topic_names_none(connection: RawConnection, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1)

    [answer] = connection.ask(CreateTopicsRequest(topics=(wanted,)), 5, CreateTopicsResponse).topics

    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (ErrorCode.NONE, 1, 1)
    assert answer.configs, "the Java admin client fails on a null"


def empty_request(request_type: type[Request]) -> Request:
    match request := request_type():
        case ProduceRequest():
            # Without acknowledgement there would be no answer.
            return replace(request, acks=1)
        case DescribeAclsRequest():
            # Apache Kafka ends the connection of who asks for what no number stands for.
            return replace(request, resource_type_filter=ANY, operation=ANY, permission_type=ANY)
        case _:
            return request


def names(connection: RawConnection, request: MetadataRequest, version: int) -> list[str | None]:
    return [each.name for each in connection.ask(request, version, MetadataResponse).topics]


def created_topic_id(connection: RawConnection, topic: str) -> UUID:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    [created] = connection.ask(CreateTopicsRequest(topics=(wanted,)), 7, CreateTopicsResponse).topics
    assert created.error_code == ErrorCode.NONE
    return created.topic_id
