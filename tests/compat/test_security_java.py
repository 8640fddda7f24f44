"""The Java client and Apache Kafka's tools with every way to log in.

The client's checks are in ``java/SecurityChecks.java`` and run in one JVM, the tools run in another.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.jars import java_command
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.peers.secured_node import MECHANISMS, PASSWORD, USERNAME, Authority, SecuredNode, access_token
from tests.peers.secured_users import PLAIN_LOGIN, SCRAM_LOGIN, TOKEN_LOGIN
from tests.proofs import JAVA, KAFKA_TOOLS

pytestmark = pytest.mark.peer

SOURCE = Path(__file__).parent / "java" / "SecurityChecks.java"
CHECKS_TIMEOUT_S = 240
LOGINS = ["SSL", "MTLS", *(f"{protocol}-{each}" for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS)]
CHECKS = [
    *(f"{login} writes and reads" for login in LOGINS),
    *(f"{mechanism} logs in anew" for mechanism in MECHANISMS),
    "a node of others is refused",
    "a node by another name is refused",
    "a mechanism that is not enabled is refused",
    "no certificate is refused",
    "a certificate of others is refused",
    *(f"a wrong password by {mechanism} is refused" for mechanism in MECHANISMS if mechanism != "OAUTHBEARER"),
    "an expired access token is refused",
    "an unknown delegation token is refused",
    "a delegation token writes, reads and ends",
    "a delegation token logs in anew",
    "a delegation token that ends ends its login",
]
TLS_REFUSED = "SslAuthenticationException"
#: The Java client reads tokens of these URLs alone.
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"

Settings = dict[str, str]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    configs = {
        "delegation.token.secret.key": "a-master-key-of-tokens",
        "listener.name.stored.sasl.enabled.mechanisms": "PLAIN",
    }
    with SecuredNode(tmp_path_factory.mktemp("secured"), configs) as node:
        node.restart()
        node.add_scram_users()
        yield node


class Logins:
    """What clients are told, in Kafka's names."""

    def __init__(self, node: SecuredNode, folder: Path) -> None:
        self._node = node
        self.token_file = folder / "token"
        self.token_file.write_text(access_token())
        self.expired_token_file = folder / "expired"
        self.expired_token_file.write_text(access_token(lifetime_s=-600))

    def tls(self, listener: str, certificate: Path | None = None) -> Settings:
        settings = {
            "bootstrap.servers": self._node.address(listener),
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._node.authority.certificate),
        }
        if certificate is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificate)}
        return settings

    def sasl(self, listener: str, mechanism: str, **other: Any) -> Settings:
        protocol = "SASL_SSL" if listener in ("SASL_SSL", "STORED") else "SASL_PLAINTEXT"
        return self.tls(listener) | {"security.protocol": protocol} | self._login(mechanism, **other)

    def _login(
        self,
        mechanism: str,
        username: str = USERNAME,
        password: str = PASSWORD,
        token_file: Path | None = None,
        by_token: bool = False,
    ) -> Settings:
        if mechanism == "OAUTHBEARER":
            return {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"{TOKEN_LOGIN} required;",
                "sasl.oauthbearer.token.endpoint.url": (token_file or self.token_file).as_uri(),
                "sasl.login.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
                ),
            }
        module = PLAIN_LOGIN if mechanism == "PLAIN" else SCRAM_LOGIN
        words = f'username="{username}" password="{_quoted(password)}"' + (' tokenauth="true"' if by_token else "")
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {words};"}

    def java_properties(self) -> dict[str, str]:
        files = (self.token_file, self.expired_token_file)
        return {
            ALLOWED_URLS: ",".join(path.as_uri() for path in files),
            ALLOWED_FILES: ",".join(str(path) for path in files),
        }


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


@pytest.fixture(scope="module")
def logins(node: SecuredNode, tmp_path_factory: pytest.TempPathFactory) -> Logins:
    return Logins(node, tmp_path_factory.mktemp("logins"))


@pytest.fixture(scope="module")
def outcomes(
    kafka_classpath: str, node: SecuredNode, logins: Logins, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    """How each check failed; None for those that hold."""
    folder = tmp_path_factory.mktemp("checks")
    cases = folder / "cases.json"
    cases.write_text(json.dumps(cases_of(node, logins, folder)))
    options = [f"-D{name}={value}" for name, value in logins.java_properties().items()]
    completed = subprocess.run(
        java_command(str(SOURCE), str(cases), jvm_options=options),
        capture_output=True,
        text=True,
        timeout=CHECKS_TIMEOUT_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    return {line["check"]: line["failure"] for line in lines}


def cases_of(node: SecuredNode, logins: Logins, folder: Path) -> dict[str, Any]:
    with_sasl = {
        f"{protocol}-{mechanism}": logins.sasl(protocol, mechanism)
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in MECHANISMS
    }
    wrong = {
        f"a wrong password by {mechanism}": refused(
            logins.sasl("SASL_SSL", mechanism, password="wrong"), "SaslAuthenticationException", "Authentication failed"
        )
        for mechanism in MECHANISMS
        if mechanism != "OAUTHBEARER"
    }
    others = Authority(folder, "others")
    by_name = logins.tls("SSL")
    by_name["bootstrap.servers"] = by_name["bootstrap.servers"].replace("127.0.0.1", "localhost")
    expired = logins.sasl("SASL_SSL", "OAUTHBEARER", token_file=logins.expired_token_file)
    unknown = logins.sasl("SASL_SSL", "SCRAM-SHA-256", username="no-such-token", password="x", by_token=True)
    return {
        "logins": {
            "SSL": logins.tls("SSL"),
            "MTLS": logins.tls("MTLS", node.authority.issue("alice")),
            **with_sasl,
        },
        "renewed": {mechanism: logins.sasl("RENEWED", mechanism) for mechanism in MECHANISMS},
        "refused": {
            "a node of others": refused(
                logins.tls("SSL") | {"ssl.truststore.location": str(others.certificate)},
                TLS_REFUSED,
                "PKIX path building",
            ),
            "a node by another name": refused(by_name, TLS_REFUSED, "name matching localhost found"),
            "a mechanism that is not enabled": refused(
                logins.sasl("STORED", "SCRAM-SHA-256"),
                "UnsupportedSaslMechanismException",
                "enabled mechanisms are [PLAIN]",
            ),
            "no certificate": refused(logins.tls("MTLS"), TLS_REFUSED, "certificate_required"),
            "a certificate of others": refused(
                logins.tls("MTLS", others.issue("stranger")),
                TLS_REFUSED,
                "unknown_ca",
            ),
            **wrong,
            "an expired access token": refused(expired, "SaslAuthenticationException", "invalid_token"),
            "an unknown delegation token": refused(unknown, "SaslAuthenticationException", "Authentication failed"),
        },
        "owner": logins.sasl("SASL_SSL", "SCRAM-SHA-512"),
        "ownerName": USERNAME,
        "byToken": logins.tls("SASL_SSL") | {"security.protocol": "SASL_SSL"},
        "renewedByToken": logins.tls("RENEWED") | {"security.protocol": "SASL_PLAINTEXT"},
    }


def refused(settings: Settings, error: str, says: str) -> dict[str, Any]:
    return {"settings": settings, "error": error, "says": says}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.proves(*JAVA, "TLS, client certificates, PLAIN, SCRAM, OAUTHBEARER, delegation tokens, renewed logins")
def test_java_client(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None, outcomes[check]


def test_no_check_of_the_program_is_left_out(outcomes: dict[str, str | None]) -> None:
    assert list(outcomes) == CHECKS


Run = Callable[..., str]


@pytest.fixture
def run(tool_shell: ToolShell, node: SecuredNode, logins: Logins, tmp_path: Path) -> Run:
    """A tool with these settings for its clients."""

    def run_with(settings: Settings, tool: str, *arguments: str, stdin: str = "") -> str:
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in settings.items()))
        return tool_shell.run(
            tool,
            *("--bootstrap-server", settings["bootstrap.servers"], "--command-config", str(path), *arguments),
            stdin=stdin,
            java_properties=logins.java_properties(),
        )

    return run_with


def _escaped(value: str) -> str:
    """As Java wants it in a file of properties."""
    return "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in value.replace("\\", "\\\\"))


@pytest.mark.parametrize("login", ["MTLS", *MECHANISMS])
@pytest.mark.proves(*KAFKA_TOOLS, "topics, configs, console clients and groups by TLS and each SASL mechanism")
def test_tools_log_in(run: Run, node: SecuredNode, logins: Logins, login: str) -> None:
    mtls = logins.tls("MTLS", node.authority.issue("tools"))
    settings = mtls if login == "MTLS" else logins.sasl("SASL_SSL", login)
    tools_work(run, settings, f"tools-{login}")


def tools_work(run: Run, settings: Settings, topic: str) -> None:
    run(settings, "kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    assert "PartitionCount: 2" in run(settings, "kafka-topics", "--describe", "--topic", topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    run(settings, "kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=1234567")
    assert "retention.ms=1234567" in run(settings, "kafka-configs", "--describe", *of_topic)
    run(settings, "kafka-console-producer", "--topic", topic, stdin="one\ntwo\nthree\n")
    read = run(
        settings,
        "kafka-console-consumer",
        *("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"),
    )
    assert sorted(read.split()) == ["one", "three", "two"]
    described = run(settings, "kafka-consumer-groups", "--describe", "--group", topic)
    assert topic in described


def test_a_tool_tells_a_wrong_password_in_the_words_of_the_node(run: Run, logins: Logins) -> None:
    with pytest.raises(ToolError, match="Authentication failed during authentication due to invalid credentials"):
        run(logins.sasl("SASL_SSL", "SCRAM-SHA-512", password="wrong"), "kafka-topics", "--list")
