"""What the fuzz says: the same for the same seed, of every API and version, and nothing that would end the test."""

from collections import Counter
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from quorate.broker.handlers import APIS
from quorate.kernel.ids import BrokerEpoch, NodeId, Offset, Term
from quorate.metadata.core.command_codec import encode_commands
from quorate.metadata.core.commands import RebalancePartitions
from quorate.protocol.apis import find_api
from quorate.protocol.codec import decode_part
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_request_header, encode_request
from quorate.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, RequestEntityData, RequestEntryData
from quorate.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from quorate.protocol.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from quorate.protocol.messages.produce import ProduceRequest, TopicProduceData
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from quorate.protocol.schema import Request
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.messages import Heartbeat, Message, TermNotice, VoteRequest, encode_message
from quorate.quorum.peer_checks import read_message, read_request
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import Channel, FrameKind
from quorate.transport.peers.hello import Hello, decode_hello
from tests.fuzz.bursts import Burst, Bursts, Ending
from tests.fuzz.client_bursts import ClientBursts
from tests.fuzz.minimize import Frames, minimize
from tests.fuzz.peer_bursts import LEARNER_ID, PeerBursts
from tests.fuzz.peer_restraint import PeerRestraint
from tests.fuzz.restraint import Restraint
from tests.fuzz.world import FUZZ_TOPICS, WITNESS_TOPIC, World

WORLD = World(node_ids=(7, 100, 4001), directory_ids=(UUID(int=7), UUID(int=100), UUID(int=4001)))
TERM = Term(3)
NODE, LEARNER = NodeId(7), NodeId(LEARNER_ID)


@pytest.mark.parametrize("make", [lambda seed: ClientBursts(seed, WORLD), lambda seed: PeerBursts(seed, WORLD, TERM)])
def test_a_seed_says_the_same_whatever_was_said_before(make: Any) -> None:
    bursts: Bursts = make(5)
    again = [bursts.burst(number) for number in (9, 3, 9)]

    assert again == [make(5).burst(number) for number in (9, 3, 9)]
    assert again[0] == again[2] != again[1]
    assert make(6).burst(9) != again[0]


def test_every_api_and_version_is_asked_for_and_most_requests_can_be_read() -> None:
    bursts, asked, readable = ClientBursts(1, WORLD), Counter[tuple[int, int]](), 0
    frames = [frame[4:] for number in range(2_500) for frame in bursts.burst(number).frames]
    for frame in frames:
        try:
            header = decode_request_header(frame)
            api = find_api(header.api_key)
            assert api is not None
            decode_part(api.request_type, frame, header.api_version, header.body_position)
        except (ProtocolError, AssertionError):
            continue
        asked[header.api_key, header.api_version] += 1
        readable += 1
    served = {(key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)}
    assert served <= asked.keys()
    assert 0.7 < readable / len(frames) < 0.98


def test_wide_requests_are_only_made_where_asked_for() -> None:
    def longest(*, is_wide: bool) -> int:
        bursts = ClientBursts(1, WORLD, is_wide=is_wide)
        return max(len(frame) for number in range(1_500) for frame in bursts.burst(number).frames)

    assert longest(is_wide=True) > 600_000 > longest(is_wide=False)


def test_as_one_that_has_joined_everything_is_said_and_most_can_be_read() -> None:
    bursts, said = PeerBursts(1, WORLD, TERM), Counter[str]()
    for number in range(2_000):
        burst = bursts.burst(number)
        hello = _hello(burst)
        if isinstance(hello, Hello) and hello.node_id == LEARNER_ID and burst.proves is not None:
            said.update(_kind(frame[4:]) for frame in burst.frames[1:3])
    messages = {kind.__name__ for kind in Message.__args__}
    requests = {"Submit", "Describe", "BrokerHeartbeat"}
    assert messages | requests | {"replica fetch", "Kafka request"} <= said.keys()
    assert said["unreadable"] < sum(said.values()) / 5


def test_some_say_it_without_knowing_the_secret() -> None:
    said = PeerBursts(1, WORLD, TERM)
    bursts = [said.burst(number) for number in range(1_000)]
    strangers = [burst for burst in bursts if burst.proves is None]
    first = Counter(FrameKind(burst.frames[0][4]) for burst in strangers if burst.waits_after_first)

    assert 150 < len(strangers) < 350
    assert first[FrameKind.AUTHENTICATE] > 30
    assert first[FrameKind.HELLO] > 30


def _hello(burst: Burst) -> Hello | None:
    if not burst.waits_after_first or burst.frames[0][4] != FrameKind.HELLO:
        return None
    found = decode_hello(memoryview(burst.frames[0])[5:])
    return found if isinstance(found, Hello) else None


def _kind(frame: bytes) -> str:
    try:
        if frame[0] == FrameKind.MESSAGE:
            return type(read_message(LEARNER, memoryview(frame)[2:])).__name__
        if frame[0] == FrameKind.REQUEST and frame[9] in (Channel.REPLICA_FETCH, Channel.KAFKA):
            return "replica fetch" if frame[9] == Channel.REPLICA_FETCH else "Kafka request"
        if frame[0] == FrameKind.REQUEST:
            return type(read_request(LEARNER, frame[10:], is_known=True)).__name__
    except (PeerProtocolError, IndexError):
        return "unreadable"
    return "something else"


WITNESS_ID = WORLD.witness_topic_id
RUINOUS: dict[str, Request] = {
    "delete the witness": DeleteTopicsRequest(topics=[DeleteTopicState(name=WITNESS_TOPIC)]),
    "delete the witness by its id": DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=WITNESS_ID)]),
    "write where the witness does": ProduceRequest(topic_data=[TopicProduceData(name=WITNESS_TOPIC)]),
    "configure the witness": IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name=WITNESS_TOPIC)]
    ),
    "configure the node": IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(resource_type=4)]),
    "topics without end": CreateTopicsRequest(topics=[CreatableTopic(name="another", num_partitions=1)]),
    "topics by asking": MetadataRequest(topics=[MetadataRequestTopic(name="another")], allow_auto_topic_creation=True),
    "partitions without end": CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=FUZZ_TOPICS[0], count=9_000)]),
    "hold everybody back": AlterClientQuotasRequest(
        entries=[RequestEntryData(entity=[RequestEntityData(entity_type="user", entity_name=None)])]
    ),
    "remove the node": UnregisterBrokerRequest(broker_id=7),
}


@pytest.mark.parametrize("request_", RUINOUS.values(), ids=RUINOUS.keys())
def test_what_would_end_the_test_is_not_sent(request_: Request) -> None:
    version = min(8, type(request_).MAX_VERSION)
    frame = b"".join(bytes(part) for part in encode_request(1, "fuzz", request_, version))[4:]

    assert not Restraint(WORLD).permits(frame)
    assert not Restraint(WORLD).permits(frame + b"more than was due")
    assert Restraint(WORLD).permits(frame[:-1] + b"\xff" * 3) or frame[-1:] == b"\0"


def test_what_ends_nothing_is_sent() -> None:
    topic = CreatableTopic(name=FUZZ_TOPICS[0], num_partitions=2)
    for request in (
        CreateTopicsRequest(topics=[topic]),
        CreateTopicsRequest(topics=[CreatableTopic(name="a/b", num_partitions=2**31 - 1)]),
        DeleteTopicsRequest(topics=[DeleteTopicState(name=FUZZ_TOPICS[0])]),
        UnregisterBrokerRequest(broker_id=8),
    ):
        frame = b"".join(bytes(part) for part in encode_request(1, "fuzz", request, type(request).MAX_VERSION))
        assert Restraint(WORLD).permits(frame[4:])


def message(kind: type[Message], term: int, **fields: Any) -> bytes:
    said = kind(term=Term(term), sender=LEARNER, receiver=NODE, **fields)
    return bytes([FrameKind.MESSAGE, Channel.RAFT]) + encode_message(said)


def leader_request(request: q.LeaderRequest) -> bytes:
    return bytes([FrameKind.REQUEST]) + bytes(8) + bytes([Channel.CONTROLLER]) + q.encode(request)


@pytest.mark.parametrize(
    ("frame", "is_permitted"),
    [
        (message(TermNotice, TERM + 1), False),
        (message(TermNotice, TERM), True),
        (message(TermNotice, 2**62), True),
        (message(Heartbeat, TERM + 1, high_watermark=Offset(0), read_round=0), False),
        (
            message(
                VoteRequest, TERM + 1, is_pre_vote=True, is_transfer=False, log_end_offset=Offset(1), last_term=TERM
            ),
            True,
        ),
        (leader_request(q.Submit(commands=encode_commands([RebalancePartitions()]), validate_only=False)), False),
        (leader_request(q.Submit(commands=encode_commands([RebalancePartitions()]), validate_only=True)), True),
        (
            leader_request(q.BrokerHeartbeat(node_id=LEARNER, broker_epoch=BrokerEpoch(5), metadata_version=Offset(0))),
            False,
        ),
        (leader_request(q.Remove(node_id=NODE)), False),
        (leader_request(q.Remove(node_id=NodeId(8))), True),
        (bytes([FrameKind.REQUEST]) + bytes(8) + bytes([Channel.KAFKA]) + pack(">hh", 27, 1), True),
        (b"", True),
    ],
)
def test_a_member_says_nothing_that_a_sound_one_could_say_to_some_effect(frame: bytes, is_permitted: bool) -> None:
    restraint = PeerRestraint(WORLD, TERM, frozenset((7, 100, 4001, LEARNER_ID)))

    assert restraint.permits(frame) is is_permitted


def test_as_a_voter_nothing_is_said_that_can_be_read() -> None:
    bursts, voters = PeerBursts(1, WORLD, TERM), 0
    for number in range(3_000):
        burst = bursts.burst(number)
        hello = _hello(burst)
        if isinstance(hello, Hello) and hello.node_id in WORLD.node_ids:
            voters += 1
            assert {_kind(frame[4:]) for frame in burst.frames[1:]} <= {"unreadable", "something else"}
    assert voters > 0


def test_a_burst_is_cut_into_pieces_without_losing_a_byte() -> None:
    frames = (b"hello", b"one", b"another" * 50)
    for piece_bytes in (0, 1, 7, 1000):
        for waits in (False, True):
            burst = Burst(
                number=0, frames=frames, piece_bytes=piece_bytes, ending=Ending.ANSWERED, waits_after_first=waits
            )
            assert b"".join(burst.pieces()) == b"".join(frames)
            assert (burst.pieces()[0] == frames[0]) is waits or piece_bytes == 7


def test_some_frames_of_a_burst_can_be_sent_alone() -> None:
    frames = (b"hello", b"one", b"two", b"three")
    burst = Burst(number=0, frames=frames, piece_bytes=0, ending=Ending.ANSWERED)
    introduced = Burst(number=0, frames=frames, piece_bytes=0, ending=Ending.ANSWERED, waits_after_first=True)

    assert burst.between(1, 3).frames == (b"one", b"two")
    assert burst.between(-9, 99).frames == frames
    assert introduced.between(2, 3).frames == (b"hello", b"two")


def test_the_fewest_frames_that_fail_are_found() -> None:
    def contains(wanted: int) -> Any:
        return lambda frames: frames.first <= wanted < frames.first + frames.count

    for wanted in (100, 4_000, 4_099):
        assert minimize(Frames(100, 4_000), contains(wanted)) == Frames(wanted, 1)
    it_takes_two = minimize(Frames(0, 1_000), lambda frames: contains(300)(frames) and contains(400)(frames))
    assert it_takes_two == Frames(250, 250)
