"""What somebody may do: the rules of Apache Kafka's StandardAuthorizer, and the index against a plain scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.security.acl_index import AclIndex
from quorate.security.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.authorizer import (
    NoAuthorizer,
    Requester,
    Rule,
    StandardAuthorizer,
    allowed_names,
    authorized_operations,
    is_allowed,
)

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
PREFIXED = PatternType.PREFIXED
DENY = AclPermission.DENY
ALICE = Requester(principal="User:alice", host="10.0.0.1")


def acl(  # noqa: PLR0917
    operation: AclOperation = READ,
    name: str = "orders",
    permission: AclPermission = AclPermission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: AclResourceType = TOPIC,
) -> Acl:
    return Acl(
        resource_type=resource_type,
        pattern_type=pattern_type,
        resource_name=name,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def may(acls: list[Acl], operation: AclOperation = READ, name: str = "orders", requester: Requester = ALICE) -> bool:
    return is_allowed(StandardAuthorizer(AclIndex(acls)), requester, operation, TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl()], True),
        ([acl(AclOperation.ALL)], True),
        ([acl(WRITE)], False),
        ([acl(name="other")], False),
        ([acl(name="*")], True),
        ([acl(name="ord", pattern_type=PREFIXED)], True),
        ([acl(name="orders", pattern_type=PREFIXED)], True),
        ([acl(name="orders.eu", pattern_type=PREFIXED)], False),
        ([acl(name="ord")], False),
        ([acl(name="*", pattern_type=PREFIXED)], False),
        ([acl(principal="User:bob")], False),
        ([acl(principal="User:*")], True),
        ([acl(principal="Group:alice")], False),
        ([acl(host="10.0.0.1")], True),
        ([acl(host="10.0.0.2")], False),
        ([acl(resource_type=GROUP)], False),
        ([acl(), acl(permission=DENY)], False),
        ([acl(), acl(name="*", permission=DENY, principal="User:*")], False),
        ([acl(), acl(name="o", permission=DENY, pattern_type=PREFIXED)], False),
        ([acl(), acl(AclOperation.ALL, permission=DENY)], False),
        ([acl(), acl(WRITE, permission=DENY)], True),
        ([acl(), acl(permission=DENY, host="10.0.0.2")], True),
        ([acl(), acl(permission=DENY, principal="User:bob")], True),
    ],
)
def test_who_may_read(acls: list[Acl], expected: bool) -> None:
    assert may(acls) is expected


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL])
def test_who_may_use_or_change_a_resource_may_describe_it(operation: AclOperation) -> None:
    assert may([acl(operation)], DESCRIBE)
    assert may([acl(AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS)


@pytest.mark.parametrize("operation", [AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS])
def test_other_operations_imply_nothing(operation: AclOperation) -> None:
    assert not may([acl(operation)], DESCRIBE)
    assert not may([acl(DESCRIBE)], operation)
    assert not may([acl(READ)], AclOperation.DESCRIBE_CONFIGS)


def test_a_deny_implies_nothing() -> None:
    assert may([acl(DESCRIBE), acl(READ, permission=DENY)], DESCRIBE)
    assert not may([acl(READ), acl(DESCRIBE, permission=DENY)], DESCRIBE)


def test_super_users_need_no_acl_and_no_deny_holds_them() -> None:
    authorizer = StandardAuthorizer(AclIndex([acl(AclOperation.ALL, "*", DENY)]), super_users=frozenset({"User:alice"}))

    assert authorizer.authorize(ALICE, WRITE, CLUSTER, "kafka-cluster").rule is Rule.SUPER_USER
    assert authorizer.may_on_any(ALICE, WRITE, TOPIC)
    assert not is_allowed(authorizer, Requester(principal="User:Alice", host="h"), WRITE, TOPIC, "orders")


def test_without_acls_everyone_may_only_where_that_is_configured() -> None:
    acls = AclIndex([acl(principal="User:bob"), acl(name="secret", principal="User:bob", pattern_type=PREFIXED)])
    closed, opened = StandardAuthorizer(acls), StandardAuthorizer(acls, allow_without_acl=True)

    assert closed.authorize(ALICE, READ, TOPIC, "free").rule is Rule.DEFAULT_DENY
    assert opened.authorize(ALICE, READ, TOPIC, "free").rule is Rule.DEFAULT_ALLOW
    # One ACL of anybody, and the resource is no longer everyone's.
    assert opened.authorize(ALICE, READ, TOPIC, "orders").rule is Rule.DEFAULT_DENY
    assert not is_allowed(opened, ALICE, READ, TOPIC, "secret-plans")
    assert is_allowed(opened, ALICE, READ, GROUP, "orders")
    assert not is_allowed(
        StandardAuthorizer(acls.changed({acl(name="*", principal="User:bob"): True}), allow_without_acl=True),
        ALICE,
        READ,
        TOPIC,
        "free",
    )


def test_a_verdict_names_the_acl_that_it_follows() -> None:
    allow, deny = acl(), acl(name="orders.", pattern_type=PREFIXED, permission=DENY)
    authorizer = StandardAuthorizer(AclIndex([allow, deny]))

    assert authorizer.authorize(ALICE, READ, TOPIC, "orders").acl == allow
    assert authorizer.authorize(ALICE, READ, TOPIC, "orders.eu").acl == deny
    assert authorizer.authorize(ALICE, READ, TOPIC, "x").acl is None


def test_names_are_decided_together() -> None:
    authorizer = StandardAuthorizer(AclIndex([acl(name="a"), acl(name="b", pattern_type=PREFIXED)]))

    assert allowed_names(authorizer, ALICE, READ, TOPIC, ["a", "a", "bc", "c"]) == {"a", "bc"}


def test_authorized_operations_are_the_bits_of_kafkas_answers() -> None:
    authorizer = StandardAuthorizer(AclIndex([acl(), acl(AclOperation.ALTER_CONFIGS)]))

    # READ 3, DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11.
    assert authorized_operations(authorizer, ALICE, TOPIC, "orders") == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11
    assert authorized_operations(authorizer, ALICE, TOPIC, "other") == 0
    # What Apache Kafka without an authorizer answers.
    assert authorized_operations(NoAuthorizer(), ALICE, TOPIC, "orders") == 3576
    assert authorized_operations(NoAuthorizer(), ALICE, GROUP, "g") == 3400
    assert authorized_operations(NoAuthorizer(), ALICE, CLUSTER) == 8096
    assert NoAuthorizer().may_on_any(ALICE, WRITE, TOPIC)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(WRITE)], True),
        ([acl(READ)], False),
        ([acl(AclOperation.ALL, "x", pattern_type=PREFIXED)], True),
        ([acl(WRITE), acl(WRITE, permission=DENY)], False),
        ([acl(WRITE), acl(WRITE, "other", DENY)], True),
        ([acl(WRITE), acl(WRITE, "ord", DENY, PREFIXED)], False),
        ([acl(WRITE, "ord", pattern_type=PREFIXED), acl(WRITE, "orders", DENY, PREFIXED)], True),
        ([acl(WRITE, "orders", pattern_type=PREFIXED), acl(WRITE, "orders", DENY)], True),
        ([acl(WRITE, "*"), acl(WRITE, "o", DENY, PREFIXED)], True),
        ([acl(WRITE, "*"), acl(WRITE, "*", DENY)], False),
        ([acl(WRITE), acl(AclOperation.ALL, "*", DENY, principal="User:*")], False),
        ([acl(WRITE, host="10.9.9.9")], False),
        ([acl(WRITE, principal="User:*")], True),
        ([acl(WRITE, principal="User:bob")], False),
    ],
)
def test_whether_there_can_be_a_topic_that_somebody_may_write_to(acls: list[Acl], expected: bool) -> None:
    assert StandardAuthorizer(AclIndex(acls)).may_on_any(ALICE, WRITE, TOPIC) is expected


def test_where_everyone_may_without_acl_there_always_can_be_one() -> None:
    authorizer = StandardAuthorizer(AclIndex([acl(WRITE, permission=DENY)]), allow_without_acl=True)

    assert authorizer.may_on_any(ALICE, WRITE, TOPIC)


NAMES = st.sampled_from(["", "a", "ab", "abc", "abd", "b", "*"])
ACLS = st.builds(
    acl,
    operation=st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.ALL]),
    name=NAMES.filter(bool),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, DENY]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
    resource_type=st.sampled_from([TOPIC, GROUP]),
)


@given(st.lists(ACLS, max_size=12), st.lists(ACLS, max_size=6), NAMES, st.sampled_from([READ, DESCRIBE]), st.booleans())
def test_the_index_decides_as_a_plain_scan_does(
    added: list[Acl], removed: list[Acl], name: str, operation: AclOperation, is_open: bool
) -> None:
    index = AclIndex(added[: len(added) // 2])
    for each in added:
        index = index.changed({each: True})
    index = index.changed(dict.fromkeys(removed, False))
    rest = set(added) - set(removed)

    assert len(index) == len(rest)
    assert set(index) == rest
    assert index == AclIndex(rest)
    authorizer = StandardAuthorizer(index, allow_without_acl=is_open)
    assert is_allowed(authorizer, ALICE, operation, TOPIC, name) is plain_scan(rest, operation, name, is_open)


def plain_scan(acls: set[Acl], operation: AclOperation, name: str, is_open: bool) -> bool:
    applying = [
        each
        for each in acls
        if each.resource_type is TOPIC
        and (
            name.startswith(each.resource_name) if each.pattern_type is PREFIXED else each.resource_name in (name, "*")
        )
    ]
    own = [each for each in applying if each.principal in ("User:alice", "User:*") and each.host in ("*", "10.0.0.1")]
    if any(each.permission is DENY and each.operation in (operation, AclOperation.ALL) for each in own):
        return False
    implying = {READ, WRITE, DESCRIBE} if operation is DESCRIBE else {operation}
    if any(each.permission is not DENY and each.operation in implying | {AclOperation.ALL} for each in own):
        return True
    return is_open and not applying


def test_an_earlier_index_stays_as_it_was() -> None:
    many = [acl(name=f"t{number}") for number in range(100)]
    before = AclIndex([acl(), *many])
    after = before.changed({acl(WRITE): True, acl(): False})

    assert set(before) == {acl(), *many}
    assert set(after) == {acl(WRITE), *many}
    assert before.changed({acl(): True}) == before
    assert before.changed({acl(WRITE): False}) == before
    assert before != after


@given(st.lists(ACLS, max_size=12), st.lists(st.tuples(ACLS, st.booleans()), max_size=8))
def test_few_changes_and_many_lead_to_the_same(acls: list[Acl], changes: list[tuple[Acl, bool]]) -> None:
    filler = [acl(name=f"t{number}") for number in range(80)]
    index = AclIndex([*acls, *filler])
    one_by_one = index
    for each, is_there in changes:
        one_by_one = one_by_one.changed({each: is_there})

    together = index.changed(dict(changes))
    rebuilt = index.changed(dict.fromkeys(filler, False)).changed(dict(changes) | dict.fromkeys(filler, True))

    assert one_by_one == together == rebuilt
    for name in ("a", "ab", "abc", "zz"):
        assert one_by_one.has_any_for(TOPIC, name) is rebuilt.has_any_for(TOPIC, name)
        assert set(one_by_one.for_resource(TOPIC, name, ["User:bob"])) == set(
            rebuilt.for_resource(TOPIC, name, ["User:bob"])
        )


def test_many_acls_are_looked_at_only_where_they_can_matter() -> None:
    index = AclIndex(
        acl(name=f"topic-{number}", principal=f"User:u{number % 100}", pattern_type=kind)
        for number in range(5_000)
        for kind in (PatternType.LITERAL, PREFIXED)
    )

    looked_at = list(index.for_resource(TOPIC, "topic-1234", ("User:u34", "User:*")))

    # Itself, twice; topic-1, topic-12 and topic-123 are prefixes too, of other principals.
    assert len(looked_at) == 2
    assert len(list(index.matching(AclFilter(resource_name="topic-1234", pattern_type=PatternType.MATCH)))) == 5
