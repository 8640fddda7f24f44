"""Every API is asked about the longest names there can be, and the highest numbers: each request has an answer."""

import json
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.handlers import APIS
from quorate.kernel.errors import MOST_CHARACTERS, ErrorCode
from quorate.protocol.apis import find_api
from quorate.protocol.frames import decode_response
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from quorate.protocol.schema import Message, Request, Response, WireType, fields_of
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.quorate_node import QuorateNode

LONGEST = 32_767
#: The same length in bytes, and a third of it in characters.
NAMES = ("x" * LONGEST, "€" * (LONGEST // 3), "topic")
BITS = {WireType.INT8: 7, WireType.INT16: 15, WireType.INT32: 31, WireType.INT64: 63}
FORGED = "me\n2026-01-01 00:00:00,000 CRITICAL quorate.broker.node node failed\x1b[2J"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    folder = tmp_path_factory.mktemp("node")
    with QuorateNode.start(folder, settings={"log": {"format": "json"}}) as running:
        with WireClient(running.bootstrap) as client:
            topic = CreatableTopic(name="topic", num_partitions=2, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
        yield running
    for line in Path(folder / "node.log").read_text().splitlines():
        if not line.startswith("ready: "):
            said = json.loads(line)
            assert (said["level"], "exception" in said) in {("INFO", False), ("WARNING", False)}, said
            assert not said["message"].startswith("answer cannot be encoded"), said


def filled(message_type: type[Message], version: int, name: str, *, at_limit: bool) -> dict[str, Any]:
    """Every field of the version; arrays have one element."""
    values: dict[str, Any] = {}
    for field in fields_of(message_type):
        if version in field.versions:
            value = value_of(field.type, version, name, at_limit=at_limit)
            values[field.name] = [value] if field.is_array else value
    return values


def value_of(kind: WireType | type[Message], version: int, name: str, *, at_limit: bool) -> object:
    if not isinstance(kind, WireType):
        return kind(**filled(kind, version, name, at_limit=at_limit))
    fixed: dict[WireType, object] = {
        WireType.BOOL: True,
        WireType.FLOAT64: 1e308,
        WireType.UUID: UUID(int=5),
        WireType.STRING: name,
        WireType.BYTES: b"x" * 100,
        WireType.RECORDS: b"x" * 100,
        WireType.UINT16: 65_535 if at_limit else 1,
    }
    return fixed[kind] if kind in fixed else 2 ** BITS[kind] - 1 if at_limit else 1


def is_answered(client: WireClient, request: Request, version: int, response_type: type[Response]) -> None:
    client.send(request, version)
    (size,) = struct.unpack(">i", client._read(4))
    decode_response(response_type, client._read(size), version)


@pytest.mark.parametrize("key", sorted(APIS))
def test_no_name_is_too_long_for_its_answer(node: QuorateNode, key: int) -> None:
    """Seen before: an error text that holds the name is longer than an answer may say, and the connection ended."""
    api, known = APIS[key], find_api(key)
    assert known is not None
    for client_id in (NAMES[0], FORGED):
        with WireClient(node.bootstrap, client_id) as client:
            for version in range(api.min_version, api.max_version + 1):
                for name in NAMES:
                    for at_limit in (False, True):
                        request = api.request(**filled(api.request, version, name, at_limit=at_limit))
                        is_answered(client, request, version, known.response_type)


def test_an_error_text_is_not_as_long_as_the_name_that_it_is_about(node: QuorateNode) -> None:
    with WireClient(node.bootstrap) as client:
        topic = CreatableTopic(name=NAMES[0], num_partitions=1, replication_factor=1)
        answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)

    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(answer.topics[0].error_message or "") < MOST_CHARACTERS + 100


def test_a_member_is_given_an_id_that_fits_however_long_its_name_is(node: QuorateNode) -> None:
    with WireClient(node.bootstrap, NAMES[1]) as client:
        eventually(partial(has_coordinator, client), "a coordinator")
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        answer = client.call(request, 5, JoinGroupResponse)

    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("€€€")
    assert len(answer.member_id) < 300


def has_coordinator(client: WireClient) -> bool:
    answer = client.call(FindCoordinatorRequest(key="group"), 3, FindCoordinatorResponse)
    return answer.error_code == ErrorCode.NONE
