"""The audit log: Kafka's words, JSON, and names that try to be more than names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.security.access import Checked
from quorate.security.acls import Acl, AclOperation, AclPermission, AclResourceType
from quorate.security.audit import (
    AuditLevel,
    LoginAttempt,
    access_fields,
    access_line,
    audit_level,
    login_fields,
    login_line,
)
from quorate.security.authorizer import AclVerdict, Requester, Rule

ALICE = Requester(principal="User:alice", host="10.0.0.1")
ACL = Acl(
    resource_type=AclResourceType.TOPIC,
    resource_name="orders",
    principal="User:alice",
    operation=AclOperation.READ,
    permission=AclPermission.DENY,
)
DENIED = AclVerdict(False, Rule.MATCHING_ACL, ACL)


def checked(verdict: AclVerdict = DENIED, name: str = "orders", *, is_quiet: bool = False) -> Checked:
    return Checked(
        operation=AclOperation.READ,
        resource_type=AclResourceType.TOPIC,
        name=name,
        verdict=verdict,
        count=2,
        is_quiet=is_quiet,
    )


def test_a_line_is_apache_kafkas() -> None:
    assert access_line(ALICE, "Fetch", checked()) == (
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:orders "
        "for request = Fetch with resourceRefCount = 2 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, "
        "resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, operation=READ, permissionType=DENY))"
    )
    allowed = checked(AclVerdict(True, Rule.SUPER_USER))
    assert access_line(ALICE, "Fetch", allowed).endswith("based on rule SuperUser")
    assert "is Allowed" in access_line(ALICE, "Fetch", allowed)


def test_json_has_the_same_in_fields() -> None:
    assert access_fields(ALICE, "OUTSIDE", "Fetch", checked(AclVerdict(True, Rule.SUPER_USER))) == {
        "event": "access",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "listener": "OUTSIDE",
        "api": "Fetch",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "pattern_type": "LITERAL",
        "count": 2,
        "allowed": True,
        "rule": "SuperUser",
        "acl": None,
    }
    assert "StandardAcl(" in access_fields(ALICE, "OUTSIDE", "Fetch", checked())["acl"]


@pytest.mark.parametrize(
    ("verdict", "is_quiet", "level"),
    [
        (DENIED, False, AuditLevel.INFO),
        (DENIED, True, AuditLevel.TRACE),
        (AclVerdict(True, Rule.MATCHING_ACL, ACL), False, AuditLevel.DEBUG),
        (AclVerdict(True, Rule.NO_AUTHORIZER), False, AuditLevel.TRACE),
    ],
)
def test_denials_are_told_and_the_rest_where_it_is_wanted(
    verdict: AclVerdict, is_quiet: bool, level: AuditLevel
) -> None:
    assert audit_level(checked(verdict, is_quiet=is_quiet)) is level


def test_logins() -> None:
    failed = LoginAttempt(
        principal=None,
        host="10.0.0.1",
        listener="EXTERNAL",
        mechanism="PLAIN",
        is_allowed=False,
        reason="wrong name or password of 'alice'",
    )
    assert login_line(failed) == (
        "Principal = nobody is Denied login by PLAIN from host = 10.0.0.1 on listener = EXTERNAL "
        "reason = \"wrong name or password of 'alice'\""
    )
    assert not login_fields(failed)["allowed"]
    done = LoginAttempt(principal="User:alice", host="h", listener="L", mechanism="TLS", is_allowed=True)
    assert login_line(done) == "Principal = User:alice is Allowed login by TLS from host = h on listener = L"
    assert login_fields(done)["principal"] == "User:alice"


HOSTILE = [
    "a\nPrincipal = User:root is Allowed",
    "a\r\nb",
    "x is Allowed operation = ALL",
    'quote" is Allowed',
    "back\\slash",
    "\x1b[2Jclear",
    "right\u202eto left",
    "line\u2028separator",
    "next\x85line",
    "\ud800",
    "",
    "n" * 10_000,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_never_more_than_a_name(name: str) -> None:
    line = access_line(Requester(principal=f"User:{name}", host="h"), "Fetch", checked(name=name))
    fields = access_fields(Requester(principal=f"User:{name}", host="h"), "L", "Fetch", checked(name=name))

    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert len(line) < 3_000
    # As it was said, so that no two names are one in JSON.
    assert fields["resource_name"][:500] == name[:500]
    assert len(fields["resource_name"]) < 600
    # Outside of quotes there is one decision in a line.
    outside = "".join(line.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    assert outside.count(" is Allowed") + outside.count(" is Denied") == 1


@given(st.text(max_size=50))
def test_no_name_ends_a_line(name: str) -> None:
    attempt = LoginAttempt(principal=name, host=name, listener=name, mechanism=name, is_allowed=False, reason=name)

    assert len(login_line(attempt).splitlines()) == 1
    assert login_line(attempt).isprintable()
    assert login_fields(attempt)["principal"] == name
