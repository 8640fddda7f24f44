"""Apache Kafka's own tools for ACLs, SCRAM users and delegation tokens, against a cluster with an authorizer.

With ``--target apache-kafka`` they run against Apache Kafka with its authorizer.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.peers.authorized_kafka import AuthorizedKafka
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.peers.secured_cluster import SecuredCluster
from tests.peers.secured_users import SCRAM_LOGIN, add_users, allow, client_properties, take_away, topic
from tests.proofs import KAFKA_TOOLS

pytestmark = [
    pytest.mark.peer,
    pytest.mark.proves(*KAFKA_TOOLS, "kafka-acls, kafka-configs of users, kafka-delegation-tokens; on three nodes"),
]

PASSWORD = "a-secret-of-alice"
MASTER_KEY = "a-master-key-of-tokens"
DAY_MS = 24 * 3600 * 1000
IDS = (7, 100, 4001)

Cluster = AuthorizedKafka | SecuredCluster
Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured")
    configs = {"delegation.token.secret.key": MASTER_KEY}
    is_quorate = request.config.getoption("--target") == "quorate"
    with (
        SecuredCluster(folder, IDS, configs) if is_quorate else AuthorizedKafka.launch(folder, IDS, configs) as running
    ):
        add_users(running, {"owner": [], "renewer": [], "reader": [topic("of-reader", "Describe")]})
        yield running


@pytest.fixture
def run(tool_shell: ToolShell, cluster: Cluster, tmp_path: Path) -> Run:
    """A tool run by the administrator, or by somebody with the settings of a client."""

    def run_against(tool: str, *arguments: str, node: int = 7, client: Mapping[str, str] | None = None) -> str:
        if client is None:
            return tool_shell.run(tool, *arguments, "--bootstrap-server", cluster.nodes[node].bootstrap)
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
        return tool_shell.run(tool, *arguments, "--bootstrap-server", cluster.secured, "--command-config", str(path))

    return run_against


def test_acls_are_added_listed_and_removed_through_any_node(run: Run) -> None:
    run("kafka-acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t", "--group", "g")
    run(
        *("kafka-acls", "--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.9", "--operation", "All"),
        *("--topic", "pre", "--resource-pattern-type", "prefixed"),
        node=100,
    )
    eventually(lambda: "User:bob" in run("kafka-acls", "--list", node=4001), "the ACL on the third node")

    listed = run("kafka-acls", "--list", "--topic", "t", node=4001)
    assert "resourceType=TOPIC, name=t, patternType=LITERAL" in listed
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
    assert "User:bob" not in listed
    matched = run("kafka-acls", "--list", "--topic", "prefix", "--resource-pattern-type", "match")
    assert "(principal=User:bob, host=10.0.0.9, operation=ALL, permissionType=DENY)" in matched

    run("kafka-acls", "--remove", "--force", "--topic", "t", "--allow-principal", "User:alice", "--operation", "Read")
    eventually(lambda: "name=t," not in run("kafka-acls", "--list", node=100), "the ACL to be gone")
    assert "resourceType=GROUP, name=g" in run("kafka-acls", "--list")


#: What the tool prints of a resource, and of an ACL on it.
RESOURCE = re.compile(r"resourceType=(\w+), name=([^,]+), patternType=(\w+)")
ENTRY = re.compile(r"\(principal=([^,]+), host=([^,]+), operation=(\w+), permissionType=(\w+)\)")


def acls(printed: str) -> set[tuple[str, ...]]:
    """Resource type, name and pattern; principal, host, operation and permission."""
    found: set[tuple[str, ...]] = set()
    resource: tuple[str, ...] = ()
    for line in printed.splitlines():
        if (named := RESOURCE.search(line)) is not None:
            resource = named.groups()
        found |= {(*resource, *entry) for entry in ENTRY.findall(line)}
    return found


def test_every_kind_of_resource_has_acls_and_the_shorthands_give_what_they_stand_for(run: Run) -> None:
    dave = "User:dave"
    add = ("kafka-acls", "--add", "--allow-principal", dave)
    run(*add, "--producer", "--idempotent", "--topic", "sent", "--transactional-id", "tx")
    run(*add, "--consumer", "--topic", "read", "--group", "readers")
    run(*add, "--allow-host", "10.0.0.9", "--operation", "DescribeConfigs", "--cluster")
    run(*add, "--operation", "Describe", "--delegation-token", "token")
    run(*add, "--operation", "CreateTokens", "--user-principal", "User:erin")
    run(*add, "--operation", "All", "--topic", "*", "--resource-pattern-type", "literal")

    def listed(*options: str) -> set[tuple[str, ...]]:
        return acls(run("kafka-acls", "--list", "--principal", dave, *options))

    def allowed(kind: str, name: str, *operations: str, host: str = "*") -> set[tuple[str, ...]]:
        return {(kind, name, "LITERAL", dave, host, operation, "ALLOW") for operation in operations}

    expected = (
        allowed("TOPIC", "sent", "WRITE", "DESCRIBE", "CREATE")
        | allowed("TRANSACTIONAL_ID", "tx", "WRITE", "DESCRIBE")
        | allowed("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE")
        | allowed("TOPIC", "read", "READ", "DESCRIBE")
        | allowed("GROUP", "readers", "READ")
        | allowed("CLUSTER", "kafka-cluster", "DESCRIBE_CONFIGS", host="10.0.0.9")
        | allowed("DELEGATION_TOKEN", "token", "DESCRIBE")
        | allowed("USER", "User:erin", "CREATE_TOKENS")
        | allowed("TOPIC", "*", "ALL")
    )
    eventually(lambda: listed() == expected, "all of them")
    assert listed("--topic", "sent") == {acl for acl in expected if acl[:2] == ("TOPIC", "sent")}

    for resource in (("--topic", "*"), ("--topic", "sent"), ("--topic", "read"), ("--group", "readers")):
        run("kafka-acls", "--remove", "--force", *resource)
    eventually(
        lambda: {acl[0] for acl in listed()} == {"TRANSACTIONAL_ID", "CLUSTER", "DELEGATION_TOKEN", "USER"}, "less"
    )
    with pytest.raises(ToolError, match="only supports"):
        run(*add, "--operation", "Write", "--group", "readers")


def test_users_are_made_described_and_deleted(run: Run) -> None:
    of_alice = ("--entity-type", "users", "--entity-name", "alice")
    for credential in (f"SCRAM-SHA-256=[iterations=8192,password={PASSWORD}]", f"SCRAM-SHA-512=[password={PASSWORD}]"):
        changed = run("kafka-configs", "--alter", *of_alice, "--add-config", credential)
        assert "Completed updating config for user alice" in changed

    eventually(lambda: "512=" in run("kafka-configs", "--describe", *of_alice, node=4001), "the user everywhere")
    described = run("kafka-configs", "--describe", *of_alice, node=4001)
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        run("kafka-configs", "--alter", *of_alice, "--delete-config", mechanism)
    eventually(lambda: "SCRAM" not in run("kafka-configs", "--describe", *of_alice), "the user to be gone")
    with pytest.raises(ToolError, match="does not exist"):
        run("kafka-configs", "--alter", *of_alice, "--delete-config", "SCRAM-SHA-256")


def test_a_wrong_credential_changes_nothing(run: Run) -> None:
    of_carol = ("--entity-type", "users", "--entity-name", "carol")
    for credential, said in (
        ("SCRAM-SHA-256=[iterations=100,password=x]", "Iterations"),
        ("SCRAM-SHA-1=[password=x]", "SCRAM-SHA-1"),
    ):
        with pytest.raises(ToolError, match=said):
            run("kafka-configs", "--alter", *of_carol, "--add-config", credential)
    assert "SCRAM" not in run("kafka-configs", "--describe", *of_carol)


TOKENS = "kafka-delegation-tokens"
#: What the tool prints of a token, and how.
TOKEN_ROW = re.compile(
    r"(?P<id>[\w-]{22})\s+(?P<hmac>[\w+/=]{88})\s+(?P<owner>\S+)\s+(?P<requester>\S+)\s+(?P<renewers>\S*)\s+"
    r"(?P<issued>[\d-]+T[\d:]+)\s+(?P<expiry>[\d-]+T[\d:]+)\s+(?P<end>[\d-]+T[\d:]+)"
)


def tokens(printed: str) -> dict[str, dict[str, str]]:
    return {row["id"]: row.groupdict() for row in TOKEN_ROW.finditer(printed)}


def by_token(cluster: Cluster, token: Mapping[str, str], mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    login = f'{SCRAM_LOGIN} required tokenauth="true" username="{token["id"]}" password="{token["hmac"]}";'
    return client_properties(cluster, "nobody") | {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def made_token(run: Run, cluster: Cluster, *options: str) -> dict[str, str]:
    owner = client_properties(cluster, "owner")
    made = run(TOKENS, "--create", "--max-life-time-period", str(DAY_MS), *options, client=owner)
    [token] = tokens(made).values()
    return token


def said(run: Run, tool: str, *arguments: str, client: Mapping[str, str]) -> str:
    """What a tool says, also where it fails: not all nodes know of a token as soon as it is made."""
    try:
        return run(tool, *arguments, client=client)
    except ToolError as error:
        return error.output


def test_a_token_is_made_described_renewed_used_and_expired(run: Run, cluster: Cluster) -> None:
    owner = client_properties(cluster, "owner")
    token = made_token(run, cluster, "--renewer-principal", "User:renewer")
    assert (token["owner"], token["requester"], token["renewers"]) == ("User:owner", "User:owner", "[User:renewer]")

    def described(client: Mapping[str, str]) -> dict[str, str] | None:
        return tokens(run(TOKENS, "--describe", "--owner-principal", "User:owner", client=client)).get(token["id"])

    for who in ("owner", "renewer"):
        eventually(lambda who=who: described(client_properties(cluster, who)) == token, f"{who} to see it")  # type: ignore[misc]
    assert described(client_properties(cluster, "reader")) is None
    # Without an owner the tool asks for the tokens of nobody.
    assert "Total number of tokens : 0" in run(TOKENS, "--describe", client=owner)

    renewer = client_properties(cluster, "renewer")
    for client in (owner, renewer):
        renewed = run(TOKENS, "--renew", "--renew-time-period", "3600000", "--hmac", token["hmac"], client=client)
        assert "Completed renew operation" in renewed
    eventually(lambda: (described(owner) or token)["expiry"] < token["end"], "an earlier end")

    # It is the owner who comes, by either mechanism.
    allow(cluster, "owner", topic("of-owner", "Describe"))
    run("kafka-topics", "--create", "--topic", "of-owner")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = by_token(cluster, token, mechanism)
        eventually(
            lambda client=client: said(run, "kafka-topics", "--list", client=client).split() == ["of-owner"],  # type: ignore[misc]
            "the owner's topics",
        )
    take_away(cluster, "owner", topic("of-owner", "Describe"))

    expired = run(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", token["hmac"], client=owner)
    assert "Completed expire operation" in expired
    eventually(lambda: described(owner) is None, "the token to be gone")
    client = by_token(cluster, token)
    eventually(lambda: "Authentication failed" in said(run, "kafka-topics", "--list", client=client), "its end")


def test_what_is_wrong_with_a_token_is_told_in_kafkas_words(run: Run, cluster: Cluster) -> None:
    token = made_token(run, cluster)
    owner = client_properties(cluster, "owner")
    renew = (TOKENS, "--renew", "--renew-time-period", "3600000", "--hmac")
    expire = (TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac")
    nobody_has = "bm8gc3VjaCB0b2tlbg=="
    with pytest.raises(ToolError, match="DelegationTokenNotFoundException"):
        run(*renew, nobody_has, client=owner)
    with pytest.raises(ToolError, match="DelegationTokenNotFoundException"):
        run(*expire, nobody_has, client=owner)
    stranger = client_properties(cluster, "reader")
    for refused in (renew, expire):
        with pytest.raises(ToolError, match="DelegationTokenOwnerMismatchException"):
            run(*refused, token["hmac"], client=stranger)
    with pytest.raises(ToolError, match="InvalidPrincipalTypeException"):
        run(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", "Group:g", client=owner)


def test_tokens_are_for_those_who_have_shown_who_they_are_and_not_by_a_token(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    config = tmp_path / "nobody.properties"
    config.write_text("")
    with pytest.raises(ToolError, match=re.compile("not allowed", re.IGNORECASE)):
        run(TOKENS, "--create", "--max-life-time-period", "-1", "--command-config", str(config))
    token = made_token(run, cluster)
    client = by_token(cluster, token)
    create = (TOKENS, "--create", "--max-life-time-period", "-1")
    eventually(lambda: "not allowed" in said(run, *create, client=client), "the refusal")


def test_nothing_that_a_node_keeps_or_says_has_a_password(run: Run, cluster: Cluster) -> None:
    run(
        *("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "dora"),
        *("--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"),
    )

    described = run("kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "7")
    assert re.search(r"delegation.token.secret.key=null sensitive=true", described)
    for node in cluster.nodes.values():
        files = [path.read_bytes() for path in node.data_dir.rglob("*") if path.is_file()]
        assert files
        for secret in (PASSWORD, MASTER_KEY):
            assert secret not in node.log_text() + described
            assert not any(secret.encode() in content for content in files)
