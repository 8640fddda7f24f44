"""Side by side with Apache Kafka's own classes: of the same ACLs the same decisions, of subjects the same names."""

import random
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from quorate.security.acl_index import AclIndex
from quorate.security.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.authorizer import Requester, StandardAuthorizer
from quorate.security.principals import parse_mapping_rules
from tests.peers.jars import java_command

SOURCE = Path(__file__).parent / "java" / "Decisions.java"
NAMES = ["a", "ab", "abc", "abd", "b", "*", "ba", "A", "a.b", "z", " a", "é", "日本"]
OPERATIONS = [AclOperation(code) for code in (3, 4, 5, 6, 7, 8, 10, 11)]
TYPES = [AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER]
HOSTS = ["10.0.0.1", "10.0.0.2"]
ROUNDS = 1_500


def ask_apache_kafka(folder: Path, lines: Iterable[str]) -> list[str]:
    questions, answers = folder / "questions", folder / "answers"
    questions.write_text("\n".join(lines) + "\n")
    subprocess.run(
        java_command(str(SOURCE), str(questions), str(answers)), check=True, timeout=240, capture_output=True
    )
    return answers.read_text().splitlines()


def random_acl(chance: random.Random) -> Acl:
    return Acl(
        resource_type=chance.choice(TYPES),
        resource_name=chance.choice(NAMES),
        pattern_type=chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=chance.choice(["User:alice", "User:bob", "User:*"]),
        host=chance.choice(["*", *HOSTS]),
        operation=chance.choice([AclOperation.ALL, *OPERATIONS]),
        permission=chance.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
    )


def line_of(acl: Acl) -> str:
    return "\t".join(
        str(int(each) if isinstance(each, int) else each)
        for each in (
            "acl",
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        )
    )


@pytest.mark.peer
def test_random_acls_allow_the_same(tmp_path: Path) -> None:
    chance = random.Random(20260301)
    lines: list[str] = []
    expected: list[str] = []
    for _ in range(ROUNDS):
        is_open = chance.random() < 0.4
        acls = {random_acl(chance) for _ in range(chance.randrange(9))}
        authorizer = StandardAuthorizer(AclIndex(acls), super_users=frozenset({"User:root"}), allow_without_acl=is_open)
        lines += [f"authorizer\t{str(is_open).lower()}", *map(line_of, acls)]
        for _ in range(16):
            name, host = chance.choice(["alice", "bob", "root"]), chance.choice(HOSTS)
            operation, kind, resource = chance.choice(OPERATIONS), chance.choice(TYPES), chance.choice(NAMES)
            requester = Requester(principal=f"User:{name}", host=host)
            lines.append(f"may\t{name}\t{host}\t{int(operation)}\t{int(kind)}\t{resource}")
            is_allowed = authorizer.authorize(requester, operation, kind, resource).is_allowed
            expected.append(str(is_allowed).lower())
            lines.append(f"may-on-any\t{name}\t{host}\t{int(operation)}\t{int(kind)}")
            expected.append(str(authorizer.may_on_any(requester, operation, kind)).lower())

    assert ask_apache_kafka(tmp_path, lines) == expected
    assert expected.count("true") > ROUNDS
    assert expected.count("false") > ROUNDS


RULES = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:^CN=(.)(.)(.*)$/$3$12$4/",
    r"RULE:^CN=([^,]+),O=a\/b$/\$$1\/x/U",
]
SUBJECTS = [
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cN=duke,OU=JavaSoft,O=Sun Microsystems",
    r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz",
    "CN=abc",
    "CN=x,O=a/b",
    "O=nobody",
]


@pytest.mark.peer
def test_subjects_become_the_same_names(tmp_path: Path) -> None:
    lines: list[str] = []
    expected: list[str] = []
    for rules in RULES:
        lines.append(f"rules\t{rules}")
        mapping = parse_mapping_rules(rules)
        for subject in SUBJECTS:
            lines.append(f"map\t{subject}")
            principal = mapping.principal(subject)
            expected.append("" if principal is None else principal.name)

    assert ask_apache_kafka(tmp_path, lines) == expected
