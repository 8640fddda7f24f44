"""Small requests that once stopped a node for seconds: whatever one client sends, the others are answered meanwhile."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.loop import attacks
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quorate.protocol.messages.produce import ProduceResponse
from tests.eventually import eventually
from tests.integration.side_client import SideClient
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

TOPIC = "topic"
COMPACTED, RECOMPRESSED = "compacted", "recompressed"
MOST_MEMORY_BYTES = 64 * 1024 * 1024
MANY = 100_000

Attack = Callable[[WireClient], None]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    with QuorateNode.start(tmp_path_factory.mktemp("node")) as running, WireClient(running.bootstrap) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=50, replication_factor=1)
        opened = [
            opened_topic(COMPACTED, "cleanup.policy", "compact"),
            opened_topic(RECOMPRESSED, "compression.type", "lz4"),
        ]
        client.call(CreateTopicsRequest(topics=[topic, *opened], timeout_ms=30_000), 7, CreateTopicsResponse)

        def has_coordinator() -> bool:
            found = client.call(FindCoordinatorRequest(key="group"), 3, FindCoordinatorResponse)
            return found.error_code == ErrorCode.NONE

        eventually(has_coordinator, "a coordinator")
        yield running


def opened_topic(name: str, config: str, value: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=config, value=value)]
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)


def find_coordinators(client: WireClient) -> None:
    keys = [f"group-{number}" for number in range(MANY)]
    answer = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4, FindCoordinatorResponse)
    assert [coordinator.key for coordinator in answer.coordinators] == keys
    assert {coordinator.error_code for coordinator in answer.coordinators} == {ErrorCode.NONE}


def describe_groups(client: WireClient) -> None:
    ids = [f"group-{number}" for number in range(MANY // 4)]
    answer = client.call(DescribeGroupsRequest(groups=ids), 5, DescribeGroupsResponse)
    assert [group.group_id for group in answer.groups] == ids


def describe_one_group_many_times(client: WireClient) -> None:
    answer = client.call(DescribeGroupsRequest(groups=[""] * MANY), 0, DescribeGroupsResponse)
    assert [group.group_id for group in answer.groups] == [""]


def list_offsets(client: WireClient) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(MANY)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    answer = client.call(request, 7, ListOffsetsResponse)
    (topic,) = answer.topics
    assert [partition.partition_index for partition in topic.partitions] == list(range(MANY))
    assert {partition.error_code for partition in topic.partitions[:50]} == {ErrorCode.NONE}


def fetch_offsets(client: WireClient) -> None:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=tuple(range(MANY)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=topics)])
    answer = client.call(request, 8, OffsetFetchResponse)
    (group,) = answer.groups
    assert [partition.partition_index for partition in group.topics[0].partitions] == list(range(MANY))


def name_one_topic_many_times(client: WireClient) -> None:
    topics = [MetadataRequestTopic(name=TOPIC)] * MANY
    answer = client.call(MetadataRequest(topics=topics), 8, MetadataResponse)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [(TOPIC, 50)]


def name_many_topics(client: WireClient) -> None:
    topics = [MetadataRequestTopic(name=f"absent-{number}") for number in range(MANY)]
    answer = client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8, MetadataResponse)
    assert len(answer.topics) == MANY


def describe_configs_many_times(client: WireClient) -> None:
    resources = [DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)] * 10_000
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    assert len(client.call(request, 4, DescribeConfigsResponse).results) == 1


def create_topics(client: WireClient) -> None:
    topics = [CreatableTopic(name=f"t-{n}", num_partitions=1, replication_factor=1) for n in range(20_000)]
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7, CreateTopicsResponse)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}


@pytest.mark.parametrize(
    "attack",
    [
        find_coordinators,
        describe_groups,
        describe_one_group_many_times,
        list_offsets,
        fetch_offsets,
        name_one_topic_many_times,
        name_many_topics,
        describe_configs_many_times,
        create_topics,
    ],
    ids=lambda attack: attack.__name__,
)
def test_a_request_with_many_elements_keeps_nobody_waiting(node: QuorateNode, attack: Attack) -> None:
    with WireClient(node.bootstrap, client_id="attacker") as attacker, SideClient(node.bootstrap, node.pid) as side:
        attack(attacker)

    assert not side.was_kept_waiting, (side.worst_s, side.idle_worst_s, side.duration_s)
    assert side.grown_bytes < MOST_MEMORY_BYTES


@pytest.mark.parametrize("topic", [COMPACTED, RECOMPRESSED])
@pytest.mark.parametrize("count", [1_200_000, 2_000_000])
def test_two_million_records_in_a_batch_that_has_to_be_opened_keep_nobody_waiting(
    node: QuorateNode, topic: str, count: int
) -> None:
    codes = under_attack(node, topic, [attacks.many_records(topic, count)] * 2)
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE}


@pytest.mark.parametrize("topic", [COMPACTED, RECOMPRESSED])
def test_bombs_of_6_kb_to_880_kb_keep_nobody_waiting_and_take_no_memory(node: QuorateNode, topic: str) -> None:
    small, *large = under_attack(node, topic, attacks.bombs(topic))
    assert small == ErrorCode.NONE
    assert set(large) == {ErrorCode.MESSAGE_TOO_LARGE}


def test_times_in_a_batch_of_a_million_records_keep_nobody_waiting(node: QuorateNode) -> None:
    records, times = attacks.many_records(TOPIC, 1_000_000), attacks.list_offsets(TOPIC, 3)
    assert under_attack(node, TOPIC, [records]) == [ErrorCode.NONE]
    with WireClient(node.bootstrap, client_id="attacker") as attacker, SideClient(node.bootstrap, node.pid) as side:
        attacker.send_frame(times)
        (topic,) = attacker.receive(7, ListOffsetsResponse).topics

    assert {partition.offset for partition in topic.partitions} == {999_999}
    assert not side.was_kept_waiting, (side.worst_s, side.idle_worst_s, side.duration_s)
    assert side.grown_bytes < MOST_MEMORY_BYTES


def under_attack(node: QuorateNode, topic: str, frames: list[bytes]) -> list[int]:
    """The error codes that the frames of the attack are answered with, once the others are found to be served."""
    codes = []
    with WireClient(node.bootstrap, client_id="attacker") as attacker, SideClient(node.bootstrap, node.pid) as side:
        for frame in frames:
            attacker.send_frame(frame)
        for _ in frames:
            ((answer,),) = [each.partition_responses for each in attacker.receive(9, ProduceResponse).responses]
            codes.append(answer.error_code)

    assert not side.was_kept_waiting, (side.worst_s, side.idle_worst_s, side.duration_s)
    assert side.grown_bytes < MOST_MEMORY_BYTES
    return codes


def test_describe_groups_with_a_megabyte_of_empty_ids_ends_only_its_connection(node: QuorateNode) -> None:
    with (
        WireClient(node.bootstrap, client_id="attacker") as attacker,
        SideClient(node.bootstrap, node.pid) as side,
        pytest.raises((AssertionError, ConnectionError)),
    ):
        attacker.call(DescribeGroupsRequest(groups=[""] * (512 * 1024)), 0, DescribeGroupsResponse)

    assert not side.was_kept_waiting
    assert side.grown_bytes < MOST_MEMORY_BYTES
