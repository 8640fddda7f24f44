"""Consumer groups through real clients on a real node: sharing, committing, and a node that goes away in between."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId
from quorate.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.compat.clients.aiokafka_client import AiokafkaClient
from tests.compat.clients.client import Client, Reader, Record
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.clients.kafka_python import KafkaPythonClient
from tests.eventually import eventually
from tests.integration.wire_client import WireClient
from tests.peers.kafka_tools import ToolShell
from tests.peers.quorate_node import QuorateNode

pytestmark = pytest.mark.proves("classic groups across the node's stop, and its kill -9")

CLIENTS: list[type[Client]] = [ConfluentClient, KafkaPythonClient, AiokafkaClient]
OFFSETS_PARTITIONS = 5
CONFIGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": OFFSETS_PARTITIONS}
NOON_MS = 1_735_732_800_000

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    folder: Path = tmp_path_factory.mktemp("groups")
    with QuorateNode.start(folder, node_id=42, configs=CONFIGS) as node:
        yield node


@pytest.fixture(params=CLIENTS, ids=lambda client: str(client.name))
def client(request: pytest.FixtureRequest, node: QuorateNode) -> Client:
    made: Client = request.param(node.bootstrap)
    return made


@pytest.fixture
def name() -> str:
    """For the topic and for the group."""
    return f"readings-{next(_numbers)}"


def write(client: Client, topic: str, numbers: range, partitions: int = 1) -> None:
    with closing(client.writer()) as writer:
        for partition in range(partitions):
            writer.write(topic, [Record(None, str(number).encode(), NOON_MS) for number in numbers], partition)


def read(member: Reader, count: int) -> list[tuple[int, int]]:
    """Partition and offset of so many records."""
    seen: list[tuple[int, int]] = []

    def enough() -> bool:
        seen.extend((stored.partition, stored.offset) for stored in member.poll())
        return len(seen) >= count

    eventually(enough, f"{count} records")
    return sorted(seen)


def describe(node: QuorateNode, group: str) -> DescribedGroup:
    with WireClient(node.bootstrap) as wire:
        [described] = wire.call(DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse).groups
    return described


STOPS: list[Callable[[QuorateNode], object]] = [QuorateNode.stop, QuorateNode.kill]


@pytest.mark.parametrize("end", STOPS, ids=["stopped", "killed"])
def test_member_goes_on_where_it_was_when_the_node_comes_back(
    node: QuorateNode, client: Client, name: str, end: Callable[[QuorateNode], object]
) -> None:
    client.create_topic(name)
    write(client, name, range(10))
    with closing(client.member(name, [name])) as member:
        assert read(member, 10) == [(0, offset) for offset in range(10)]
        member.commit()
        before = describe(node, name)
        end(node)
        node.restart()
        # A coordinator that still reads its log says so.
        eventually(lambda: describe(node, name) == before, "the group to be Stable again with the same members")
        write(client, name, range(10, 15))
        assert read(member, 5) == [(0, offset) for offset in range(10, 15)]
        member.commit()

    with closing(client.member(name, [name])) as next_member:
        write(client, name, range(15, 16))
        assert read(next_member, 1) == [(0, 15)]


def test_two_members_share_again_after_the_node_was_killed(node: QuorateNode, client: Client, name: str) -> None:
    client.create_topic(name, partitions=4)
    everything = {(name, partition) for partition in range(4)}
    with closing(client.member(name, [name])) as first, closing(client.member(name, [name])) as second:

        def shared() -> bool:
            for member in (first, second):
                member.poll()
            mine, theirs = first.assignment(), second.assignment()
            return len(mine) == len(theirs) == 2 and mine | theirs == everything

        eventually(shared, "two partitions for each member")
        node.kill()
        node.restart()
        write(client, name, range(3), partitions=4)
        seen: list[tuple[int, int]] = []

        def all_seen() -> bool:
            for member in (first, second):
                seen.extend((stored.partition, stored.offset) for stored in member.poll())
            return len(set(seen)) == 12

        eventually(all_seen, "the records of all partitions")


def test_node_stops_in_good_order_while_a_join_is_parked(node: QuorateNode, name: str) -> None:
    with WireClient(node.bootstrap) as member, WireClient(node.bootstrap) as newcomer:
        joined = join(member, name, version=3)
        sync(member, name, joined)
        newcomer.send(join_request(name), 3)
        eventually(lambda: describe(node, name).group_state == "PreparingRebalance", "the rebalance")

        assert node.stop() == 0
    node.restart()


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def join(wire: WireClient, group: str, version: int) -> JoinGroupResponse:
    response = wire.call(join_request(group), version, JoinGroupResponse)
    assert response.error_code == ErrorCode.NONE
    return response


def sync(wire: WireClient, group: str, joined: JoinGroupResponse) -> None:
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[share]
    )
    assert wire.call(request, 3, SyncGroupResponse).assignment == b"share"


def test_generation_outlives_a_killed_node(node: QuorateNode, name: str) -> None:
    with WireClient(node.bootstrap) as wire:
        joined = join(wire, name, version=3)
        sync(wire, name, joined)
    node.kill()
    node.restart()

    heartbeat = HeartbeatRequest(group_id=name, generation_id=joined.generation_id, member_id=joined.member_id)
    with WireClient(node.bootstrap) as wire:
        assert wire.call(heartbeat, 3, HeartbeatResponse).error_code == ErrorCode.NONE


def test_member_that_vanishes_is_replaced_after_its_session(node: QuorateNode, name: str) -> None:
    with WireClient(node.bootstrap) as wire:
        request = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = wire.call(request, 3, JoinGroupResponse)
        sync(wire, name, joined)

    eventually(lambda: describe(node, name).group_state == "Empty", "the member to expire")


@pytest.mark.peer
def test_apache_kafka_reads_the_offsets_topic(node: QuorateNode, tool_shell: ToolShell, name: str) -> None:
    client = ConfluentClient(node.bootstrap)
    client.create_topic(name)
    write(client, name, range(3))
    with closing(client.member(name, [name])) as member:
        read(member, 3)
        member.commit()
    partition = partition_for(GroupId(name), OFFSETS_PARTITIONS)
    log = node.data_dir / f"__consumer_offsets-{partition}" / "00000000000000000000.log"

    dumped = tool_shell.run("kafka-dump-log", "--offsets-decoder", "--files", str(log))
    assert f'"group":"{name}","topic":"{name}","partition":0' in dumped
    assert '"offset":3' in dumped
    assert '"protocolType":"consumer"' in dumped
    assert "Failed" not in dumped


@pytest.mark.peer
def test_apache_kafkas_tool_sees_resets_and_deletes_groups(node: QuorateNode, tool_shell: ToolShell, name: str) -> None:
    def groups_tool(*arguments: str) -> str:
        return tool_shell.run("kafka-consumer-groups", "--bootstrap-server", node.bootstrap, *arguments)

    client = ConfluentClient(node.bootstrap)
    client.create_topic(name)
    write(client, name, range(10))
    with closing(client.member(name, [name])) as member:
        read(member, 10)
        member.commit()
        assert name in groups_tool("--list").split()
        assert row_of(groups_tool("--describe", "--group", name), name)[2:6] == ["0", "10", "10", "0"]
        assert "Stable" in groups_tool("--describe", "--group", name, "--state")
        assert "/127.0.0.1" in groups_tool("--describe", "--group", name, "--members", "--verbose")
        assert "GroupNotEmptyException" in groups_tool("--delete", "--group", name)

    groups_tool("--group", name, "--topic", name, "--reset-offsets", "--to-offset", "4", "--execute")
    assert row_of(groups_tool("--describe", "--group", name), name)[2:6] == ["0", "4", "10", "6"]
    groups_tool("--group", name, "--topic", name, "--delete-offsets")
    groups_tool("--delete", "--group", name)
    assert name not in groups_tool("--list").split()


def row_of(table: str, first_word: str) -> list[str]:
    [row] = [line.split() for line in table.splitlines() if line.startswith(first_word)]
    return row
