"""The log of a real node: a client that provokes lines without end fills neither the disk nor other lines."""

import json
import re
import socket
import struct
from pathlib import Path

import pytest

from quorate.kernel import native
from quorate.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

MAX_BYTES = 64 * 1024
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ quorate\.")
#: Of Metadata 9: a header with a client id of 10,000 bytes that are not there.
TORN = struct.pack(">hhih", 3, 9, 1, 10_000)


def provoke(node: QuorateNode, count: int) -> None:
    """Requests that cannot be read: each is refused with a line."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", node.port), timeout=30) as connection:
            connection.sendall(struct.pack(">i", len(TORN)) + TORN)
            assert connection.recv(1) == b""


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_node_log_that_never_ended_is_replaced_when_it_is_full(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "logs" / "node.log"
    log.parent.mkdir()
    settings: dict[str, str | int] = {
        "level": "debug",  # A line for each connection.
        "format": kind,
        "file": str(log),
        "max_bytes": MAX_BYTES,
        "kept_files": 2,
    }
    with QuorateNode.start(tmp_path / "node", settings={"log": settings}) as node:
        provoke(node, 2500)
        eventually((log.parent / "node.log.2").exists, "the log to be replaced twice")

    files = sorted(log.parent.iterdir())
    assert [file.name for file in files] == ["node.log", "node.log.1", "node.log.2"]
    assert all(file.stat().st_size <= MAX_BYTES for file in files)
    for line in (line for file in files for line in file.read_text().splitlines()):
        if kind == "json":
            assert {"time", "level", "logger", "message"} <= set(json.loads(line))
        else:
            assert LINE.match(line), line


def test_a_node_says_once_which_kernel_it_uses(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    with QuorateNode.start(tmp_path / "node", settings={"log": {"file": str(log)}}):
        pass
    told = [line for line in log.read_text().splitlines() if "kernel chosen" in line]
    assert len(told) == 1
    assert told[0].endswith(f"kernel chosen node=7 kernel={str(native.choice)!r}")


@pytest.mark.parametrize(("level", "is_told"), [("info", True), ("warning", False)])
def test_the_level_says_what_is_told(tmp_path: Path, level: str, is_told: bool) -> None:
    log = tmp_path / "node.log"
    with QuorateNode.start(tmp_path / "node", settings={"log": {"level": level, "file": str(log)}}) as node:
        provoke(node, 1)

    assert ("request refused" in log.read_text()) is is_told


def test_requests_that_cannot_be_read_have_so_many_lines_and_are_counted_then(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    with QuorateNode.start(tmp_path / "node", settings={"log": {"file": str(log)}}) as node:
        provoke(node, 300)
    # As many as in two spans of ten seconds, however slow the machine is.
    assert 50 <= log.read_text().count("request refused") <= 100


def test_what_is_audited_has_a_file_of_its_own(tmp_path: Path) -> None:
    audit, log = tmp_path / "audit.log", tmp_path / "node.log"
    settings = {"audit": {"file": str(audit), "format": "json"}, "log": {"file": str(log)}}
    configs = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with QuorateNode.start(tmp_path / "node", settings=settings, configs=configs) as node:
        with WireClient(node.bootstrap) as client:
            client.call(ListGroupsRequest(), 2, ListGroupsResponse)
            client.call(MetadataRequest(topics=[MetadataRequestTopic(name="a\nb")]), 1, MetadataResponse)
        denied = [json.loads(line)["fields"] for line in audit.read_text().splitlines()]
    (found,) = [each for each in denied if each["api"] == "Metadata"]
    assert (found["principal"], found["resource_name"], found["allowed"]) == ("User:ANONYMOUS", "a\nb", False)
    assert (found["listener"], found["host"], found["operation"]) == ("PLAINTEXT", "127.0.0.1", "DESCRIBE")
    assert "is Denied" not in log.read_text()


def test_a_node_whose_log_disk_is_full_serves_on(tmp_path: Path) -> None:
    with QuorateNode.start(tmp_path / "node", settings={"log": {"file": "/dev/full"}}) as node:
        provoke(node, 10)
        with WireClient(node.bootstrap) as client:
            assert client.call(MetadataRequest(topics=None), 9, MetadataResponse).brokers
