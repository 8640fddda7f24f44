"""The consumer group protocol with the Java client, whose checks run in one JVM, and with Apache Kafka's tools."""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.compat.clients.confluent import ConfluentClient
from tests.compat.conftest import NodeUnderTest, running_node
from tests.compat.test_consumer_protocol import CONFIGS, Join, join
from tests.compat.test_groups import polled_assignments
from tests.eventually import eventually
from tests.peers.jars import java_command
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.proofs import JAVA, KAFKA_TOOLS

__all__ = ["join"]

pytestmark = pytest.mark.peer

SOURCE = Path(__file__).parent / "java" / "ConsumerProtocolChecks.java"
CHECKS_TIMEOUT_S = 240
CHECKS = [
    "members share and take over partitions",
    "group goes on after what it committed",
    "pattern is resolved by the coordinator",
    "bad pattern is refused",
    "range assignor can be asked for, an unknown one cannot",
    "static member comes back",
    "classic group moves over and back",
]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderTest]:
    with running_node(request.config, tmp_path_factory.mktemp("node"), CONFIGS) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(node: NodeUnderTest) -> str:
    return node.bootstrap


@pytest.fixture(scope="module")
def outcomes(kafka_classpath: str, bootstrap: str) -> dict[str, str | None]:
    """How each check failed; None for those that hold."""
    completed = subprocess.run(
        java_command(str(SOURCE), bootstrap), capture_output=True, text=True, timeout=CHECKS_TIMEOUT_S, check=False
    )
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    return {line["check"]: line["failure"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.proves(*JAVA, "KIP-848 groups: sharing, patterns, assignors, static members, from classic and back")
def test_java_consumer(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None, outcomes[check]


def test_no_check_of_the_program_is_left_out(outcomes: dict[str, str | None]) -> None:
    assert list(outcomes) == CHECKS


@pytest.mark.proves(*KAFKA_TOOLS, "KIP-848 groups: kafka-consumer-groups, kafka-configs of a group")
def test_tools_show_groups_members_and_offsets(
    tool_shell: ToolShell, bootstrap: str, join: Join, topic: str, group: str
) -> None:
    def run(*arguments: str) -> str:
        return tool_shell.run("kafka-consumer-groups", *arguments, "--bootstrap-server", bootstrap)

    ConfluentClient(bootstrap).create_topic(topic, partitions=2)
    with closing(join(topic)) as member:
        eventually(lambda: len(polled_assignments([member])[0]) == 2, "both partitions")
        member.poll()

        listed = run("--list", "--state", "--type")
        assert re.search(rf"^{group}\s+Consumer\s+Stable", listed, re.MULTILINE), listed
        described = run("--describe", "--group", group, "--state")
        assert re.search(rf"{group}\s.*\suniform\s+Stable\s", described), described
        members = run("--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}:0,1" in members, members
        assert topic in run("--describe", "--group", group)
    eventually(lambda: "Empty" in run("--describe", "--group", group, "--state"), "an empty group")
    run("--delete", "--group", group)
    assert group not in run("--list")


@pytest.mark.proves(*KAFKA_TOOLS, "KIP-848 groups: kafka-consumer-groups, kafka-configs of a group")
def test_group_is_given_configs_of_its_own(tool_shell: ToolShell, bootstrap: str, group: str) -> None:
    of_group = ("--entity-type", "groups", "--entity-name", group, "--bootstrap-server", bootstrap)

    tool_shell.run("kafka-configs", "--alter", "--add-config", "consumer.session.timeout.ms=50000", *of_group)
    eventually(
        lambda: "consumer.session.timeout.ms=50000" in tool_shell.run("kafka-configs", "--describe", *of_group),
        "the group's config",
    )
    with pytest.raises(ToolError, match=r"session\.timeout"):
        tool_shell.run("kafka-configs", "--alter", "--add-config", "consumer.session.timeout.ms=100", *of_group)
