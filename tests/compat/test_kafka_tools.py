"""Apache Kafka's own command-line tools against the node."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.eventually import eventually
from tests.peers.kafka_tools import ToolError, ToolShell, run_tool
from tests.proofs import KAFKA_TOOLS

pytestmark = [
    pytest.mark.peer,
    pytest.mark.proves(
        *KAFKA_TOOLS, "topics, configs, console clients, groups, offsets, records, log directories, verifiable clients"
    ),
]

Run = Callable[..., str]


@pytest.fixture
def run(tool_shell: ToolShell, bootstrap: str) -> Run:
    """Run a tool against the node: ``run(tool, *arguments, stdin="")``."""

    def run_against_node(tool: str, *arguments: str, stdin: str = "") -> str:
        return tool_shell.run(tool, *arguments, "--bootstrap-server", bootstrap, stdin=stdin)

    return run_against_node


def test_topics_are_created_listed_described_altered_and_deleted(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=98765")
    assert topic in run("kafka-topics", "--list").splitlines()

    described = run("kafka-topics", "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=98765" in described
    assert re.findall(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", described) == [
        ("0", "7", "7", "7"),
        ("1", "7", "7", "7"),
    ]

    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    eventually(lambda: "PartitionCount: 4" in run("kafka-topics", "--describe", "--topic", topic), "4 partitions")

    run("kafka-topics", "--delete", "--topic", topic)
    eventually(lambda: topic not in run("kafka-topics", "--list").splitlines(), "the topic to be gone")


def test_refusals_reach_the_user_of_kafka_topics(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")

    with pytest.raises(ToolError, match="already exists"):
        run("kafka-topics", "--create", "--topic", topic)
    with pytest.raises(ToolError, match=r"(?i)replicat"):
        run("kafka-topics", "--create", "--topic", f"{topic}.2", "--replication-factor", "3")
    with pytest.raises(ToolError, match=r"(?i)partition"):
        run("kafka-topics", "--alter", "--topic", topic, "--partitions", "1")
    with pytest.raises(ToolError, match="does not exist"):
        run("kafka-topics", "--describe", "--topic", f"{topic}.3")


def test_topics_with_problems_are_none(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic)

    for problem in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in run("kafka-topics", "--describe", problem)


def test_topic_configs_are_added_and_deleted(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)

    run("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=4321,cleanup.policy=[compact,delete]")
    eventually(lambda: "retention.ms=4321" in run("kafka-configs", "--describe", *of_topic), "the new config")
    assert "cleanup.policy=compact,delete" in run("kafka-configs", "--describe", *of_topic)

    run("kafka-configs", "--alter", *of_topic, "--delete-config", "retention.ms")
    eventually(lambda: "retention.ms" not in run("kafka-configs", "--describe", *of_topic), "the config to be gone")
    everything = run("kafka-configs", "--describe", "--all", *of_topic)
    assert (
        "  max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}" in everything
    )


def test_broker_default_applies_to_topics_without_their_own(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic)
    every_broker = ("--entity-type", "brokers", "--entity-default")

    def retention() -> str:
        described = run("kafka-configs", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
        [value] = re.findall(r"^  retention\.ms=(\d+) ", described, re.MULTILINE)
        return str(value)

    run("kafka-configs", "--alter", *every_broker, "--add-config", "log.retention.ms=123456789")
    try:
        eventually(lambda: retention() == "123456789", "the new default")
        assert "log.retention.ms=123456789" in run("kafka-configs", "--describe", *every_broker)
    finally:
        run("kafka-configs", "--alter", *every_broker, "--delete-config", "log.retention.ms")
    eventually(lambda: retention() == "604800000", "the built-in default")


def test_broker_configs_are_altered_and_described(run: Run) -> None:
    of_broker = ("--entity-type", "brokers", "--entity-name", "7")

    run("kafka-configs", "--alter", *of_broker, "--add-config", "message.max.bytes=1048599")
    try:
        described = eventually(lambda: run("kafka-configs", "--describe", *of_broker), "the broker's configs")
        assert "message.max.bytes=1048599" in described
    finally:
        run("kafka-configs", "--alter", *of_broker, "--delete-config", "message.max.bytes")
    assert "node.id=7" in run("kafka-configs", "--describe", "--all", *of_broker)


def test_console_producer_and_consumer(run: Run, topic: str) -> None:
    lines = "h1:v1,h2:v2\tkey 1\tvalue 1\nh3:v3\tkey 2\tvalue 2\n"
    parsing = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    printing = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")

    run("kafka-console-producer", "--topic", topic, *parsing, stdin=lines)

    consumed = run("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2", *printing)
    assert consumed == lines


def test_group_is_listed_described_reset_and_deleted(run: Run, topic: str, group: str) -> None:
    run("kafka-topics", "--create", "--topic", topic)
    run("kafka-console-producer", "--topic", topic, stdin="a\nb\nc\n")
    run("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")

    assert group in run("kafka-consumer-groups", "--list").splitlines()
    assert re.search(rf"^{group}\s+Classic\s+consumer", run("kafka-groups", "--list"), re.MULTILINE)
    assert described_offsets(run, group, topic) == ("3", "3", "0")
    assert "Empty" in run("kafka-consumer-groups", "--describe", "--group", group, "--state")

    resetting = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    run("kafka-consumer-groups", *resetting, "--to-offset", "1")
    assert described_offsets(run, group, topic) == ("1", "3", "2")
    run("kafka-consumer-groups", *resetting, "--to-earliest")
    assert described_offsets(run, group, topic) == ("0", "3", "3")
    run("kafka-consumer-groups", *resetting, "--to-datetime", "2020-01-01T00:00:00.000")
    assert described_offsets(run, group, topic) == ("0", "3", "3")
    run("kafka-consumer-groups", *resetting, "--to-latest")
    assert described_offsets(run, group, topic) == ("3", "3", "0")

    run("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert topic not in run("kafka-consumer-groups", "--describe", "--group", group)
    run("kafka-consumer-groups", *resetting, "--to-latest")
    run("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in run("kafka-consumer-groups", "--list").splitlines()


def test_offsets_are_printed_by_kafka_get_offsets(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    run("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true", stdin="k\tv\nk\tv\n")

    by_time = {
        time: sorted(run("kafka-get-offsets", "--topic", topic, "--time", time).split())
        for time in ("earliest", "latest")
    }

    assert by_time["earliest"] == [f"{topic}:0:0", f"{topic}:1:0"]
    assert sorted(line.rsplit(":", 1)[1] for line in by_time["latest"]) == ["0", "2"]


def test_records_are_deleted_by_kafka_delete_records(
    run: Run, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run("kafka-topics", "--create", "--topic", topic)
    run("kafka-console-producer", "--topic", topic, stdin="a\nb\nc\n")
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}
    file = tmp_path_factory.mktemp("delete") / "offsets.json"
    file.write_text(json.dumps(wanted))

    assert "low_watermark: 2" in run("kafka-delete-records", "--offset-json-file", str(file))

    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:2"


def test_log_directory_is_described_by_kafka_log_dirs(run: Run, topic: str) -> None:
    run("kafka-topics", "--create", "--topic", topic)
    run("kafka-console-producer", "--topic", topic, stdin="a\n")

    described = json.loads(run("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])

    [broker] = described["brokers"]
    [directory] = broker["logDirs"]
    [partition] = directory["partitions"]
    assert broker["broker"] == 7
    assert directory["error"] is None
    assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (f"{topic}-0", 0, False)
    assert partition["size"] > 0


def test_user_of_kafka_acls_is_told_that_there_is_no_authorizer(run: Run) -> None:
    to_all = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "any")
    for arguments in (("--list",), ("--add", *to_all), ("--remove", "--force", *to_all)):
        with pytest.raises(ToolError, match="No Authorizer is configured"):
            run("kafka-acls", *arguments)


def test_api_versions_are_printed(run: Run, bootstrap: str) -> None:
    printed = run("kafka-broker-api-versions")

    assert printed.startswith(f"{bootstrap} (id: 7 ")
    for api in ("Produce(0)", "Fetch(1)", "Metadata(3)", "JoinGroup(11)", "ApiVersions(18)", "InitProducerId(22)"):
        assert re.search(rf"{re.escape(api)}: \d+ to \d+ \[usable: \d+\]", printed), api


def test_cluster_id_and_endpoints_are_printed(tool_shell: ToolShell, bootstrap: str) -> None:
    cluster_id = tool_shell.run("kafka-cluster", "cluster-id", "--bootstrap-server", bootstrap)
    endpoints = tool_shell.run("kafka-cluster", "list-endpoints", "--bootstrap-server", bootstrap)

    assert re.search(r"Cluster ID: \S{20,}", cluster_id)
    host, port = bootstrap.split(":")
    assert re.search(rf"^7\s+{host}\s+{port}\s", endpoints, re.MULTILINE)


def test_verifiable_producer_and_consumer_agree(kafka_classpath: str, bootstrap: str, topic: str, group: str) -> None:
    """They print from threads that outlive their main function, so each has a JVM of its own."""
    settings = ("--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "200")

    produced = json_lines(run_tool("kafka-verifiable-producer", *settings, "--acks", "-1"))
    consumed = json_lines(run_tool("kafka-verifiable-consumer", *settings, "--group-id", group, "--verbose"))

    acknowledged = [line["value"] for line in produced if line["name"] == "producer_send_success"]
    assert len(acknowledged) == 200
    assert sorted(line["value"] for line in consumed if line["name"] == "record_data") == sorted(acknowledged)
    assert any(line["name"] == "offsets_committed" and line["success"] for line in consumed)


def described_offsets(run: Run, group: str, topic: str) -> tuple[str, str, str]:
    """Committed offset, end offset and lag of the topic's only partition."""
    described = run("kafka-consumer-groups", "--describe", "--group", group)
    [line] = [line.split() for line in described.splitlines() if line.split()[1:2] == [topic]]
    return line[3], line[4], line[5]


def json_lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
