"""ACLs and filters: what can be kept, and which ones a filter is about, as Apache Kafka's AclBindingFilter says."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.security.acl_index import AclIndex
from quorate.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    check_acl,
)

READ_ORDERS = Acl(
    resource_type=AclResourceType.TOPIC, resource_name="orders", principal="User:alice", operation=AclOperation.READ
)
READ_ORD = Acl(
    resource_type=AclResourceType.TOPIC,
    pattern_type=PatternType.PREFIXED,
    resource_name="ord",
    principal="User:bob",
    operation=AclOperation.READ,
)
DENY_ALL_TOPICS = Acl(
    resource_type=AclResourceType.TOPIC,
    resource_name="*",
    principal="User:*",
    host="10.0.0.1",
    operation=AclOperation.ALL,
    permission=AclPermission.DENY,
)
GROUP = Acl(
    resource_type=AclResourceType.GROUP, resource_name="orders", principal="User:alice", operation=AclOperation.READ
)
ALL = {READ_ORDERS, READ_ORD, DENY_ALL_TOPICS, GROUP}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), ALL),
        (AclFilter(resource_type=AclResourceType.GROUP), {GROUP}),
        (AclFilter(principal="User:alice"), {READ_ORDERS, GROUP}),
        (AclFilter(host="10.0.0.1"), {DENY_ALL_TOPICS}),
        (AclFilter(host="*"), ALL - {DENY_ALL_TOPICS}),
        (AclFilter(operation=AclOperation.ALL), {DENY_ALL_TOPICS}),
        (AclFilter(permission=AclPermission.ALLOW), ALL - {DENY_ALL_TOPICS}),
        (AclFilter(pattern_type=PatternType.PREFIXED), {READ_ORD}),
        (AclFilter(pattern_type=PatternType.LITERAL), ALL - {READ_ORD}),
        (AclFilter(resource_name="orders"), {READ_ORDERS, GROUP}),
        (AclFilter(resource_name="ord"), {READ_ORD}),
        (AclFilter(resource_name="*"), {DENY_ALL_TOPICS}),
        (AclFilter(resource_name="orders", pattern_type=PatternType.PREFIXED), set()),
        (AclFilter(resource_name="orders", pattern_type=PatternType.MATCH), ALL),
        (
            AclFilter(resource_name="orders", pattern_type=PatternType.MATCH, resource_type=AclResourceType.TOPIC),
            ALL - {GROUP},
        ),
        (AclFilter(resource_name="or", pattern_type=PatternType.MATCH), {DENY_ALL_TOPICS}),
        (AclFilter(resource_name="*", pattern_type=PatternType.MATCH), {DENY_ALL_TOPICS}),
        (AclFilter(pattern_type=PatternType.MATCH), ALL),
    ],
)
def test_a_filter_finds_the_same_with_and_without_the_index(wanted: AclFilter, expected: set[Acl]) -> None:
    assert {acl for acl in ALL if wanted.matches(acl)} == expected
    found = list(AclIndex(ALL).matching(wanted))
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (AclFilter(resource_type=AclResourceType(77)), "Unknown patternFilter"),
        (AclFilter(pattern_type=PatternType(-1)), "Unknown patternFilter"),
        (AclFilter(operation=AclOperation(99)), "Unknown entryFilter"),
        (AclFilter(permission=AclPermission(9)), "Unknown entryFilter"),
    ],
)
def test_a_filter_with_codes_that_nobody_knows_is_refused(wanted: AclFilter, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        wanted.check()

    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": AclResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": AclResourceType(50)}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"permission": AclPermission.ANY}, "Invalid permissionType ANY"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": AclResourceType.CLUSTER, "resource_name": "x"},
            "only valid name for the CLUSTER resource is",
        ),
        ({"principal": "alice"}, "not of the form type:name"),
    ],
)
def test_what_is_no_acl_is_refused(changes: dict[str, object], message: str) -> None:
    fields = {name: getattr(READ_ORDERS, name) for name in READ_ORDERS.__struct_fields__} | changes

    with pytest.raises(KafkaError, match=message) as raised:
        check_acl(Acl(**fields))

    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_what_can_be_kept_passes() -> None:
    for acl in ALL:
        check_acl(acl)
        AclFilter().check()
