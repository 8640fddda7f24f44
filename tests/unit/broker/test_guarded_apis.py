"""An authorizer on a whole node: what is refused, where the answer says so, and that it tells nothing else."""

import logging
import re
from typing import Any

import msgspec
import pytest

from quorate.broker.handlers import APIS
from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.messages import add_partitions_to_txn as add
from quorate.protocol.messages import describe_configs, fetch, metadata, offset_fetch, produce
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from quorate.protocol.schema import Request
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.security.acls import AclOperation, AclResourceType
from quorate.security.api_rules import API_RULES, NOTHING
from quorate.security.authorizer import OPERATIONS_NOT_ASKED_FOR
from quorate.transport.connection import CloseConnection
from tests.filled_requests import Shape, filled
from tests.unit.broker.guarded_node import World, play

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
Op, On = AclOperation, AclResourceType

GUARDED = [
    (api_key, version)
    for api_key, api in sorted(APIS.items())
    if API_RULES[ApiKey(api_key)] != NOTHING
    for version in range(api.min_version, api.max_version + 1)
    if not (api_key == ApiKey.PRODUCE and version < 3)
]


def about(name: str, api_key: int, version: int, *, nulls: bool) -> Request:
    """A request that names one of each kind of thing."""
    request = filled(APIS[api_key].request, version, Shape.WIDE, 1, lambda _field, _number: name, nulls=nulls)
    if isinstance(request, fetch.FetchRequest):
        return msgspec.structs.replace(request, session_id=0, session_epoch=-1)
    return msgspec.structs.replace(request, acks=-1) if isinstance(request, produce.ProduceRequest) else request


@pytest.mark.parametrize("nulls", [False, True], ids=["named", "null"])
def test_what_exists_and_what_does_not_look_the_same_to_who_may_see_neither(nulls: bool) -> None:
    async def scenario(world: World) -> None:
        for api_key, version in GUARDED:
            known = find_api(api_key)
            assert known is not None
            answers = []
            for name in ("secret", "absent"):
                answer = await world.call(about(name, api_key, version, nulls=nulls), version, known.response_type)
                answers.append(re.sub("<memory at .*?>", "no records", str(answer)).replace(f"'{name}'", "'it'"))
            assert answers[0] == answers[1], (ApiKey(api_key).name, version)
            assert "'open'" not in answers[0]

    play(scenario)


def batch(
    acks: int, *topics: str, transactional_id: str | None = None, is_transactional: bool = False
) -> produce.ProduceRequest:
    record = Record(0, 1_700_000_000_000, b"k", b"v")  # type: ignore[arg-type]
    records = bytearray(build_batch([record], is_transactional=is_transactional))
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            produce.TopicProduceData(
                name=name, partition_data=[produce.PartitionProduceData(index=0, records=memoryview(records[:]))]
            )
            for name in topics
        ],
    )


def test_a_producer_writes_where_it_may_and_is_refused_elsewhere() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.WRITE, On.TOPIC, "open")

        answer = await world.call(batch(-1, "secret", "open", "absent"), 9, produce.ProduceResponse)

        results = {topic.name: topic.partition_responses[0] for topic in answer.responses}
        assert {name: result.error_code for name, result in results.items()} == {
            "open": 0,
            "secret": TOPIC_DENIED,
            "absent": TOPIC_DENIED,
        }
        assert results["secret"].base_offset == -1
        with pytest.raises(CloseConnection):
            await world.call(batch(0, "secret"), 9, produce.ProduceResponse)

    play(scenario)


def test_a_transaction_of_others_refuses_the_whole_request() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.WRITE, On.TOPIC, "open")
        denied = batch(-1, "open", transactional_id="of-alice", is_transactional=True)
        answer = await world.call(denied, 9, produce.ProduceResponse)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    play(scenario)


def test_records_outside_a_transaction_are_not_asked_for_one() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.WRITE, On.TOPIC, "open")
        answer = await world.call(batch(-1, "open", transactional_id="of-alice"), 9, produce.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    play(scenario)


def fetch_of(*topics: str, session_id: int = 0, epoch: int = -1, replica_id: int = -1) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        max_bytes=1_000,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            fetch.FetchTopic(topic=name, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1_000)])
            for name in topics
        ],
    )


def codes(answer: fetch.FetchResponse) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


def test_a_consumer_reads_what_it_may_until_it_may_not() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.TOPIC, "open")
        opened = await world.call(fetch_of("secret", "open", "absent", epoch=0), 12, fetch.FetchResponse)
        assert codes(opened) == {"open": 0, "secret": TOPIC_DENIED, "absent": TOPIC_DENIED}

        await world.allow(Op.READ, On.TOPIC, "secret")
        later = await world.call(fetch_of(session_id=opened.session_id, epoch=1), 12, fetch.FetchResponse)
        assert codes(later) == {"secret": 0, "absent": TOPIC_DENIED}

        follower = await world.call(fetch_of("open", replica_id=3), 12, fetch.FetchResponse)
        assert codes(follower) == {"open": TOPIC_DENIED}

    play(scenario)


def test_a_client_that_plays_a_follower_is_told_that_it_is_none() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.CLUSTER_ACTION, On.CLUSTER, "kafka-cluster")
        follower = await world.call(fetch_of("open", "absent", replica_id=3), 12, fetch.FetchResponse)
        assert codes(follower) == {
            "open": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    play(scenario)


def named(*names: str, **others: Any) -> metadata.MetadataRequest:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return metadata.MetadataRequest(topics=topics, **others)


def topics_of(answer: metadata.MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_metadata_names_what_one_may_describe(version: int) -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.TOPIC, "open")
        everything = named() if version == 0 else metadata.MetadataRequest(topics=None)
        assert topics_of(await world.call(everything, version, metadata.MetadataResponse)) == {"open": 0}
        asked = await world.call(named("open", "secret", "absent"), version, metadata.MetadataResponse)
        assert topics_of(asked) == {"open": 0, "secret": TOPIC_DENIED, "absent": TOPIC_DENIED}
        refused = await world.call(named("secret"), version, metadata.MetadataResponse)
        assert topics_of(refused) == {"secret": TOPIC_DENIED}

    play(scenario)


def test_a_topic_that_may_be_described_but_not_created_is_not_created() -> None:
    async def scenario(world: World) -> None:
        for name in ("new", "newer"):
            await world.allow(Op.DESCRIBE, On.TOPIC, name)
        await world.allow(Op.CREATE, On.TOPIC, "newer")
        asked = await world.call(named("new", "newer"), 9, metadata.MetadataResponse)
        assert topics_of(asked)["new"] == TOPIC_DENIED
        assert sorted(world.node.node.metadata.image.topics) == ["newer", "open", "secret"]

    play(scenario)


def bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


def test_answers_say_what_else_one_may_do() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.TOPIC, "open")
        asked = named("open", "secret", include_cluster_authorized_operations=True)
        answer = await world.call(asked, 9, metadata.MetadataResponse)
        assert answer.cluster_authorized_operations == 0
        assert answer.topics[0].topic_authorized_operations == OPERATIONS_NOT_ASKED_FOR
        asked = named("open", "secret", include_topic_authorized_operations=True)
        answer = await world.call(asked, 9, metadata.MetadataResponse)
        operations = {topic.name: topic.topic_authorized_operations for topic in answer.topics}
        assert operations == {"open": bits(Op.READ, Op.DESCRIBE), "secret": OPERATIONS_NOT_ASKED_FOR}
        pages = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="secret")])
        page = await world.call(pages, 0, DescribeTopicPartitionsResponse)
        assert [(topic.name, topic.error_code) for topic in page.topics] == [("secret", TOPIC_DENIED)]
        page = await world.call(DescribeTopicPartitionsRequest(), 0, DescribeTopicPartitionsResponse)
        assert [(each.name, each.topic_authorized_operations) for each in page.topics] == [
            ("open", bits(Op.READ, Op.DESCRIBE))
        ]
        await world.allow(Op.DESCRIBE, On.CLUSTER, "kafka-cluster")
        cluster = await world.call(
            DescribeClusterRequest(include_cluster_authorized_operations=True), 1, DescribeClusterResponse
        )
        assert cluster.cluster_authorized_operations == bits(Op.DESCRIBE)

    play(scenario)


def test_without_an_authorizer_everybody_may_do_everything_and_is_told_so() -> None:
    async def scenario(world: World) -> None:
        asked = named("open", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
        answer = await world.call(asked, 9, metadata.MetadataResponse)
        assert answer.cluster_authorized_operations == bits(
            Op.CREATE,
            Op.CLUSTER_ACTION,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
            Op.IDEMPOTENT_WRITE,
            Op.ALTER,
            Op.DESCRIBE,
        )
        assert answer.topics[0].topic_authorized_operations == bits(
            *(Op.READ, Op.WRITE, Op.CREATE, Op.DESCRIBE, Op.DELETE, Op.ALTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)
        )

    play(scenario, {})


def test_who_creates_a_topic_is_told_its_configs_where_that_is_allowed() -> None:
    async def scenario(world: World) -> None:
        for name in ("a", "b"):
            await world.allow(Op.CREATE, On.TOPIC, name)
        await world.allow(Op.DESCRIBE_CONFIGS, On.TOPIC, "b")
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("a", "b", "c")]
        created = await world.call(CreateTopicsRequest(topics=topics), 7, CreateTopicsResponse)
        results = {topic.name: topic for topic in created.topics}
        assert {name: result.error_code for name, result in results.items()} == {"a": 0, "b": 0, "c": TOPIC_DENIED}
        assert results["c"].error_message == "Authorization failed."
        assert (results["a"].topic_config_error_code, results["a"].num_partitions) == (TOPIC_DENIED, -1)
        assert (results["b"].topic_config_error_code, results["b"].num_partitions) == (0, 2)
        assert results["b"].configs
        assert not results["a"].configs

    play(scenario)


def test_a_topic_is_deleted_by_who_may_and_named_to_who_may_see_it() -> None:
    async def scenario(world: World) -> None:
        image = world.node.node.metadata.image
        ids = {name: image.topics[name].topic_id for name in ("open", "secret")}  # type: ignore[index]
        await world.allow(Op.DESCRIBE, On.TOPIC, "open")
        await world.allow(Op.DESCRIBE, On.TOPIC, "gone")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=each) for each in ids.values()] + [DeleteTopicState(name="gone")]
        )
        answer = await world.call(request, 6, DeleteTopicsResponse)
        results = {result.topic_id: result for result in answer.responses}
        assert (results[ids["open"]].name, results[ids["open"]].error_code) == ("open", TOPIC_DENIED)
        assert (results[ids["secret"]].name, results[ids["secret"]].error_code) == (None, TOPIC_DENIED)
        by_name = {result.name: result.error_code for result in answer.responses}
        assert by_name["gone"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await world.allow(Op.DELETE, On.TOPIC, "secret")
        deleted = await world.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="secret")]), 6, DeleteTopicsResponse
        )
        assert deleted.responses[0].error_code == 0

    play(scenario)


def test_configs_are_refused_by_what_they_belong_to() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.DESCRIBE_CONFIGS, On.TOPIC, "open")
        resources = [
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
            for resource_type, name in ((2, "open"), (2, "secret"), (4, "7"), (32, "group"))
        ]
        request = describe_configs.DescribeConfigsRequest(resources=resources)
        answer = await world.call(request, 4, describe_configs.DescribeConfigsResponse)
        assert {(result.resource_type, result.resource_name): result.error_code for result in answer.results} == {
            (2, "open"): 0,
            (2, "secret"): TOPIC_DENIED,
            (4, "7"): ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            (32, "group"): ErrorCode.GROUP_AUTHORIZATION_FAILED,
        }

    play(scenario)


def test_offsets_are_told_of_groups_and_topics_that_one_may_describe() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.GROUP, "mine")
        await world.allow(Op.READ, On.TOPIC, "open")
        topics = [
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("open", "secret")
        ]
        groups = [offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("mine", "other")]
        answer = await world.call(offset_fetch.OffsetFetchRequest(groups=groups), 9, offset_fetch.OffsetFetchResponse)
        found = {group.group_id: group for group in answer.groups}
        assert found["other"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert not found["other"].topics
        by_topic = {topic.name: topic.partitions[0].error_code for topic in found["mine"].topics}
        assert by_topic.get("secret", TOPIC_DENIED) == TOPIC_DENIED

    play(scenario)


def test_nothing_is_added_to_a_transaction_where_one_topic_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.allow(Op.WRITE, On.TRANSACTIONAL_ID, "mine")
        await world.allow(Op.WRITE, On.TOPIC, "open")
        topics = [add.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("open", "secret")]
        request = add.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="mine", v3_and_below_producer_id=1, v3_and_below_topics=topics
        )
        answer = await world.call(request, 3, add.AddPartitionsToTxnResponse)
        results = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        assert results == {"open": ErrorCode.OPERATION_NOT_ATTEMPTED, "secret": TOPIC_DENIED}

    play(scenario)


def test_answers_unlike_their_requests_are_refused_too() -> None:
    async def scenario(world: World) -> None:
        folder = AlterReplicaLogDir(path="/x", topics=[AlterReplicaLogDirTopic(name="open", partitions=[0, 1])])
        answer = await world.call(AlterReplicaLogDirsRequest(dirs=[folder]), 2, AlterReplicaLogDirsResponse)
        [topic] = answer.results
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
            (index, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) for index in (0, 1)
        ]

    play(scenario)


def test_the_audit_log_tells_of_denials_and_of_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="quorate.audit")

    async def scenario(world: World) -> None:
        await world.allow(Op.READ, On.TOPIC, "open")
        await world.call(named("open"), 9, metadata.MetadataResponse)
        assert not caplog.records
        await world.call(named("secret"), 9, metadata.MetadataResponse)
        [line] = caplog.messages
        assert "Principal = User:bob is Denied operation = DESCRIBE from host = 10.0.0.1" in line
        assert "on resource = Topic:LITERAL:secret for request = Metadata" in line

    play(scenario)
