"""What each API asks: the table is whole, its names are the messages', and requests are refused where Kafka does it."""

import types
import typing
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

from quorate.broker.handlers import APIS
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from quorate.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from quorate.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from quorate.protocol.messages.fetch import FetchRequest, ReplicaState
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from quorate.protocol.schema import Message, Request
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.security.access import Access, check, examine
from quorate.security.acl_index import AclIndex
from quorate.security.acls import CLUSTER_NAME, Acl, AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.api_rules import API_RULES, LISTED_GROUPS, NOTHING, AclAsk, RefusalPlace
from quorate.security.authorizer import NoAuthorizer, Requester, StandardAuthorizer

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
ALICE = Requester(principal="User:alice", host="10.0.0.1")
ORDERS_ID, SECRET_ID, UNKNOWN_ID = UUID(int=1), UUID(int=2), UUID(int=3)
NAMES = {ORDERS_ID: "orders", SECRET_ID: "secret"}


def may(operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> Acl:
    return Acl(resource_type=resource_type, resource_name=name, principal="User:alice", operation=operation)


def ask_for(request: Request, *acls: Acl, version: int | None = None, tells_allowed: bool = False) -> Access:
    latest = request.MAX_VERSION if version is None else version
    authorizer = StandardAuthorizer(AclIndex(acls))
    return examine(
        request,
        latest,
        api_key=request.API_KEY,
        authorizer=authorizer,
        requester=ALICE,
        topic_name=NAMES.get,
        tells_allowed=tells_allowed,
    )


def test_there_is_a_rule_for_every_api_that_is_served() -> None:
    assert [find_api(key) for key in APIS if key not in API_RULES] == []


def test_only_what_concerns_nobody_else_is_served_to_everybody() -> None:
    assert {key.name for key, asks in API_RULES.items() if asks is NOTHING} == {
        "SASL_HANDSHAKE",
        "API_VERSIONS",
        "SASL_AUTHENTICATE",
        "RENEW_DELEGATION_TOKEN",
        "EXPIRE_DELEGATION_TOKEN",
        "GET_TELEMETRY_SUBSCRIPTIONS",
        "PUSH_TELEMETRY",
    }


def named(kind: Any) -> list[Any]:
    """The types in an annotation, without what stands around them."""
    if get_origin(kind) is typing.Annotated:
        return named(get_args(kind)[0])
    if get_origin(kind) in (types.UnionType, typing.Union, Sequence):
        return [each for part in get_args(kind) for each in named(part)]
    return [kind]


@pytest.mark.parametrize("key", list(API_RULES), ids=lambda key: key.name)
def test_every_name_is_a_field_of_the_request_in_its_versions(key: ApiKey) -> None:
    api = find_api(key)
    assert api is not None
    for ask in API_RULES[key]:
        assert ask.first_version <= min(ask.last_version, api.max_version)
        if not ask.names:
            assert ask.from_state or ask.resource_type is CLUSTER
            continue
        message: Any = api.request_type
        *path, field = ask.names.split(".")
        for step in path:
            message = next(
                each
                for each in named(get_type_hints(message, include_extras=True)[step])
                if isinstance(each, type) and issubclass(each, Message)
            )
        leaves = named(get_type_hints(message, include_extras=True)[field])
        assert {str, UUID} & set(leaves), leaves


def test_each_resource_type_has_its_error() -> None:
    for asks in API_RULES.values():
        for ask in asks:
            assert ask.error_code.name.endswith("AUTHORIZATION_FAILED")


@pytest.mark.parametrize(
    ("acls", "refusal", "denied"),
    [
        ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, set()),
        ([may(AclOperation.WRITE, TRANSACTION, "tx")], None, {"orders", "secret"}),
        (
            [may(AclOperation.WRITE, TRANSACTION, "tx"), may(AclOperation.WRITE, TOPIC, "orders")],
            None,
            {"secret"},
        ),
    ],
)
@pytest.mark.parametrize("by_id", [False, True])
def test_produce(acls: list[Acl], refusal: ErrorCode | None, denied: set[str], by_id: bool) -> None:
    record = Record(Offset(0), 1_700_000_000_000, None, b"value")
    data = [PartitionProduceData(records=build_batch([record], is_transactional=True))]
    if by_id:
        topics = [TopicProduceData(topic_id=each, partition_data=data) for each in (ORDERS_ID, SECRET_ID, UNKNOWN_ID)]
    else:
        topics = [TopicProduceData(name=each, partition_data=data) for each in ("orders", "secret")]
    access = ask_for(ProduceRequest(transactional_id="tx", topic_data=topics), *acls, version=13 if by_id else 12)

    assert access.refusal is refusal
    assert access.denied == {(AclOperation.WRITE, TOPIC, name) for name in denied}
    if refusal is None:
        assert access.may(AclOperation.WRITE, TOPIC, "secret") is ("secret" not in denied)


def test_a_producer_without_a_transaction_needs_no_right_to_one() -> None:
    access = ask_for(
        ProduceRequest(topic_data=[TopicProduceData(name="orders")]), may(AclOperation.ALL, TOPIC, "orders"), version=9
    )

    assert access.refusal is None
    assert access.denied == frozenset()


def test_who_fetches_as_a_follower_has_to_be_a_node() -> None:
    for request, version in (
        (FetchRequest(replica_id=1), 12),
        (FetchRequest(replica_state=ReplicaState(replica_id=1)), 17),
    ):
        access = ask_for(request, version=version)
        assert not access.may(AclOperation.CLUSTER_ACTION, CLUSTER)
        assert ask_for(request, may(AclOperation.CLUSTER_ACTION, CLUSTER), version=version).denied == frozenset()
    assert ask_for(FetchRequest()).checked == ()


def test_a_missing_and_a_forbidden_topic_look_the_same() -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("orders", "secret", "missing")]
    access = ask_for(MetadataRequest(topics=topics), may(AclOperation.READ, TOPIC, "orders"))

    assert access.denied == {(AclOperation.DESCRIBE, TOPIC, name) for name in ("secret", "missing")}
    by_id = ask_for(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=SECRET_ID)]))
    assert by_id.denied == {(AclOperation.DESCRIBE, TOPIC, "secret")}
    assert ask_for(MetadataRequest(topics=None)).checked == ()


@pytest.mark.parametrize(
    ("acls", "denied"),
    [
        ([], {"a", "b"}),
        ([may(AclOperation.CREATE, TOPIC, "a")], {"b"}),
        ([may(AclOperation.CREATE, CLUSTER)], set()),
        ([may(AclOperation.ALL, CLUSTER)], set()),
    ],
)
def test_who_may_create_on_the_cluster_needs_no_right_to_the_topic(acls: list[Acl], denied: set[str]) -> None:
    access = ask_for(CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]), *acls)

    assert access.denied == {(AclOperation.CREATE, TOPIC, name) for name in denied}


@pytest.mark.parametrize(
    ("acls", "refusal"),
    [
        ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([may(AclOperation.IDEMPOTENT_WRITE, CLUSTER)], None),
        ([may(AclOperation.WRITE, TOPIC, "any")], None),
        ([may(AclOperation.READ, TOPIC, "any")], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_an_idempotent_producer_may_write_somewhere(acls: list[Acl], refusal: ErrorCode | None) -> None:
    assert ask_for(InitProducerIdRequest(transactional_id=None), *acls).refusal is refusal


def test_a_transactional_producer_needs_its_own_right() -> None:
    request = InitProducerIdRequest(transactional_id="tx", enable2_pc=True)
    write = may(AclOperation.WRITE, TRANSACTION, "tx")

    assert ask_for(request).refusal is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask_for(request, write).refusal is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask_for(request, write, version=5).refusal is None
    assert ask_for(request, write, may(AclOperation.TWO_PHASE_COMMIT, TRANSACTION, "tx")).refusal is None


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (0, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_coordinators(key_type: int, error: ErrorCode) -> None:
    # Nobody has a coordinator of shares in older versions, whatever they may do.
    older = ask_for(FindCoordinatorRequest(key="k", key_type=key_type), version=3).refusal
    assert older is (error if key_type < 2 else None)
    newer = ask_for(FindCoordinatorRequest(coordinator_keys=["k"], key_type=key_type), version=6)
    assert newer.refusal is (None if key_type < 2 else error)
    assert len(newer.denied) == (1 if key_type < 2 else 0)


def test_groups_and_their_topics() -> None:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="orders")]),
            OffsetFetchRequestGroup(group_id="h", topics=None),
        ]
    )
    access = ask_for(request, may(AclOperation.READ, GROUP, "g"), version=8)

    assert access.denied == {(AclOperation.DESCRIBE, GROUP, "h"), (AclOperation.DESCRIBE, TOPIC, "orders")}


def test_a_member_may_not_subscribe_to_what_it_may_not_see() -> None:
    group = may(AclOperation.READ, GROUP, "g")
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["orders", "secret"])

    assert ask_for(request).refusal is ErrorCode.GROUP_AUTHORIZATION_FAILED
    seen = may(AclOperation.DESCRIBE, TOPIC, "orders")
    assert ask_for(request, group, seen).refusal is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert ask_for(request, group, seen, may(AclOperation.READ, TOPIC, "secret")).refusal is None
    assert ask_for(ConsumerGroupHeartbeatRequest(group_id="g"), group).refusal is None


def test_configs_are_asked_for_by_their_resource() -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name="orders"),
            DescribeConfigsResource(resource_type=4, resource_name="1"),
            DescribeConfigsResource(resource_type=32, resource_name="g"),
        ]
    )

    assert ask_for(request).denied == {
        (AclOperation.DESCRIBE_CONFIGS, TOPIC, "orders"),
        (AclOperation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME),
        (AclOperation.DESCRIBE_CONFIGS, GROUP, "g"),
    }
    assert ask_for(request, may(AclOperation.ALTER_CONFIGS, TOPIC, "orders")).may(
        AclOperation.DESCRIBE_CONFIGS, TOPIC, "orders"
    )


def test_what_nodes_say_to_each_other_needs_the_right_of_a_node() -> None:
    markers = WriteTxnMarkersRequest()
    assert ask_for(markers).refusal is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask_for(markers, may(AclOperation.CLUSTER_ACTION, CLUSTER)).refusal is None
    assert ask_for(markers, may(AclOperation.ALTER, CLUSTER)).refusal is None

    topics = [AddPartitionsToTxnTopic(name="orders")]
    old = AddPartitionsToTxnRequest(v3_and_below_transactional_id="tx", v3_and_below_topics=topics)
    assert ask_for(old).refusal is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask_for(old, version=3).refusal is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    granted = ask_for(old, may(AclOperation.WRITE, TRANSACTION, "tx"), version=3)
    assert granted.denied == {(AclOperation.WRITE, TOPIC, "orders")}


def test_an_api_without_a_rule_is_for_nodes_alone() -> None:
    class Unknown:
        pass

    authorizer = StandardAuthorizer(AclIndex())
    for key in (ApiKey.SHARE_FETCH, 9_999):
        access = examine(Unknown(), 0, api_key=key, authorizer=authorizer, requester=ALICE, topic_name=NAMES.get)
        assert access.refusal is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_without_an_authorizer_everything_is_served() -> None:
    access = examine(
        WriteTxnMarkersRequest(),
        1,
        api_key=ApiKey.WRITE_TXN_MARKERS,
        authorizer=NoAuthorizer(),
        requester=ALICE,
        topic_name=NAMES.get,
    )

    assert access.refusal is None


def test_what_was_decided_is_told_for_the_audit_log() -> None:
    topics = [TopicProduceData(name=name) for name in ("orders", "orders", "secret")]
    request, write = ProduceRequest(topic_data=topics), may(AclOperation.WRITE, TOPIC, "orders")

    assert [each.name for each in ask_for(request, write, version=9).checked] == ["secret"]
    access = ask_for(request, write, version=9, tells_allowed=True)
    assert [(each.name, each.count, each.verdict.is_allowed, each.is_quiet) for each in access.checked] == [
        ("orders", 2, True, False),
        ("secret", 1, False, False),
    ]


def test_handlers_ask_about_what_they_find() -> None:
    prefixed = Acl(
        resource_type=GROUP,
        pattern_type=PatternType.PREFIXED,
        resource_name="a",
        principal="User:alice",
        operation=AclOperation.READ,
    )
    authorizer = StandardAuthorizer(AclIndex([prefixed]))
    names = [each.name for each in check(LISTED_GROUPS, ["a1", "b1"], authorizer, ALICE) if each.verdict.is_allowed]
    assert names == ["a1"]

    sees_all = StandardAuthorizer(AclIndex([may(AclOperation.DESCRIBE, CLUSTER)]))
    [only] = check(LISTED_GROUPS, ["a1", "b1"], sees_all, ALICE)
    assert only.resource_type is CLUSTER
    assert only.verdict.is_allowed
    assert list(check(LISTED_GROUPS, [], sees_all, ALICE)) == []


def test_a_denied_element_does_not_refuse_the_rest() -> None:
    deny = Acl(
        resource_type=TOPIC,
        resource_name="secret",
        principal="User:*",
        operation=AclOperation.WRITE,
        permission=AclPermission.DENY,
    )
    every = Acl(resource_type=TOPIC, resource_name="*", principal="User:alice", operation=AclOperation.WRITE)
    topics = [TopicProduceData(name=name) for name in ("orders", "secret")]

    assert ask_for(ProduceRequest(topic_data=topics), every, deny, version=9).denied == {
        (AclOperation.WRITE, TOPIC, "secret")
    }


def test_where_an_error_goes_is_one_of_three() -> None:
    placed: dict[RefusalPlace, list[AclAsk]] = {}
    for asks in API_RULES.values():
        for ask in asks:
            placed.setdefault(ask.refusal, []).append(ask)

    assert set(placed) == set(RefusalPlace)
    assert all(ask.from_state for ask in placed[RefusalPlace.OMITTED])
