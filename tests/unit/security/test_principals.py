"""Principals, super users, and mapping rules; the cases are those that Apache Kafka documents and tests."""

import pytest

from quorate.kernel.errors import QuorateError
from quorate.security.principals import (
    ANONYMOUS,
    KafkaPrincipal,
    parse_mapping_rules,
    parse_principal,
    parse_super_users,
    user,
)


def test_a_principal_is_a_type_and_a_name() -> None:
    assert parse_principal("User:alice") == user("alice")
    assert parse_principal("Group:a:b") == KafkaPrincipal("Group", "a:b")
    assert str(user("CN=a,O=b")) == "User:CN=a,O=b"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(QuorateError, match="is no principal of the form type:name"):
        parse_principal(text)


def test_super_users_stand_between_semicolons() -> None:
    assert parse_super_users("User:CN=Bob,O=x ; User:alice;") == {"User:CN=Bob,O=x", "User:alice"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(QuorateError, match="'bob' is no principal"):
        parse_super_users("User:alice;bob")


RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (RULES, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (RULES, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz", r"Tkac\, Adam"),
        ("", "CN=a", "CN=a"),
        (", ,DEFAULT,,", "CN=a", "CN=a"),
        ("  RULE:CN=(.*)/$1/U   ,DEFAULT  ", "CN=a", "A"),
        (r"RULE:CN=a\/b/c\/d/", "CN=a/b", "c/d"),
        (r"RULE:(.*)/\$1-$1/", "x", "$1-x"),
        ("RULE:(.)(.)/$12$3$2/", "ab", "a2$3b"),
        ("RULE:(a)|(b)/[$1$2]/", "b", "[b]"),
        ("RULE:,RULE:,/x/", ",RULE:,", "x"),
        ("RULE:CN=(.*)/$0/", "CN=a", "CN=a"),
    ],
)
def test_the_first_rule_that_matches_names_the_principal(rules: str, subject: str, name: str) -> None:
    assert parse_mapping_rules(rules).principal(subject) == user(name)


def test_where_no_rule_matches_there_is_no_principal() -> None:
    mapping = parse_mapping_rules("RULE:^CN=(.*)$/$1/")

    assert mapping.principal("O=other") is None
    assert mapping.principal("x CN=a") is None
    assert mapping.principal("CN=" + "a" * 5_000) is None


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/$1/",
        "RULE:(?=a)a/$1/",
        "RULE:" + "a" * 5_000 + "/x/",
        "RULE:(a{1000}){10}/x/",
        "DEFAULT DEFAULT",
    ],
)
def test_what_is_no_rule_is_one_sentence(rules: str) -> None:
    with pytest.raises(QuorateError, match=r"^ssl\.principal\.mapping\.rules: ") as raised:
        parse_mapping_rules(rules)

    assert "\n" not in str(raised.value)
