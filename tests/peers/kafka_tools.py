"""Apache Kafka's command-line tools, by the names of their scripts.

``run_tool`` starts a JVM for one run; a ``ToolShell`` keeps one JVM for many runs, which is what tests want.
"""

import json
import subprocess
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.peers.jars import FOLDER, java_command

MAIN_CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
TOOL_TIMEOUT_S = 120
SHELL_SOURCE = FOLDER / "java" / "ToolShell.java"


class ToolError(Exception):
    """A tool ended with a status other than 0."""

    def __init__(self, tool: str, status: int, output: str) -> None:
        super().__init__(f"{tool} ended with status {status}:\n{output}")
        self.status = status
        self.output = output


def run_tool(tool: str, *arguments: str, stdin: str = "", timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Run one tool in a JVM of its own and return what it printed on standard output."""
    completed = subprocess.run(
        java_command(MAIN_CLASSES[tool], *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if completed.returncode != 0:
        raise ToolError(tool, completed.returncode, completed.stdout + completed.stderr)
    return completed.stdout


class ToolShell:
    """One JVM that runs one tool after the other."""

    def __init__(self) -> None:
        self._jvm = subprocess.Popen(
            java_command(str(SHELL_SOURCE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        java_properties: Mapping[str, str] | None = None,
    ) -> str:
        """What the tool printed on standard output; ``ToolError`` when it failed or hung (then the JVM is gone).

        ``java_properties`` are set for this run and all that come later.
        """
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        request = {
            "main": MAIN_CLASSES[tool],
            "arguments": arguments,
            "stdin": stdin,
            "properties": java_properties or {},
        }
        self._jvm.stdin.write(json.dumps(request) + "\n")
        self._jvm.stdin.flush()
        watchdog = threading.Timer(timeout_s, self._jvm.kill)
        watchdog.start()
        line = self._jvm.stdout.readline()
        watchdog.cancel()
        if not line:
            raise ToolError(tool, -1, f"no answer within {timeout_s} s, or the JVM ended")
        answer = json.loads(line)
        if answer["status"] != 0:
            raise ToolError(tool, answer["status"], answer["stdout"] + answer["stderr"])
        return str(answer["stdout"])

    def close(self) -> None:
        self._jvm.kill()
        self._jvm.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
