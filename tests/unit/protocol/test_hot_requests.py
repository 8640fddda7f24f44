"""Produce and Fetch requests that native code reads: the same as its twins read, and nothing that they refuse."""

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.native import choice
from quorate.protocol.codec import decode_part
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import RequestHeader, decode_request_header, encode_request
from quorate.protocol.hot_messages import HotRequest, read_hot_request
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.protocol.strategies import messages

pytestmark = pytest.mark.skipif(choice.module is None, reason=choice.reason)

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
TOPIC_IDS_FROM = 13
TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
MUTATIONS = 400
TYPES: dict[int, type[Any]] = {0: ProduceRequest, 1: FetchRequest}


def frame_of(request: HotRequest, version: int, client_id: str | None = "client") -> bytes:
    return b"".join(encode_request(77, client_id, request, version))[4:]


def produce_request(version: int, records: bytes | None = b"records", **changed: Any) -> ProduceRequest:
    data = (PartitionProduceData(index=3, records=records),)
    which: dict[str, Any] = {"name": "tøpic"} if version < TOPIC_IDS_FROM else {"topic_id": TOPIC_ID}
    topic = TopicProduceData(**which, partition_data=data)
    fields: dict[str, Any] = {"acks": -1, "timeout_ms": 30_000, "topic_data": (topic,)}
    return ProduceRequest(**fields | changed)


def fetch_request(version: int, **changed: Any) -> FetchRequest:
    partition = FetchPartition(partition=2, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
    which: dict[str, Any] = {"topic": "tøpic"} if version < TOPIC_IDS_FROM else {"topic_id": TOPIC_ID}
    topic = FetchTopic(**which, partitions=(partition,))
    fields: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 1,
        "topics": (topic,),
    }
    return FetchRequest(**fields | changed)


def read_by_twins(frame: memoryview) -> tuple[RequestHeader, HotRequest]:
    header = decode_request_header(frame)
    return header, decode_part(TYPES[header.api_key], frame, header.api_version, header.body_position)[0]


def agree(frame: bytes) -> bool:
    """Whether it was read by native code, and then as by the twins."""
    view = memoryview(bytearray(frame))
    found = read_hot_request(view)
    if found is None:
        return False
    assert found == read_by_twins(view)
    return True


def usual() -> Iterator[tuple[str, bytes]]:
    for version in PRODUCE_VERSIONS:
        for name, request in {
            "": produce_request(version),
            "large": produce_request(version, bytes(100_000)),
            "empty": produce_request(version, b""),
            "null": produce_request(version, None),
            "transactional": produce_request(version, transactional_id="mine", acks=1),
        }.items():
            yield f"produce {version} {name}", frame_of(request, version)
    for version in FETCH_VERSIONS:
        yield f"fetch {version}", frame_of(fetch_request(version), version)
        yield f"fetch {version} of a session", frame_of(fetch_request(version, topics=()), version, None)
        if version >= 11:
            yield f"fetch {version} in a rack", frame_of(fetch_request(version, rack_id="a" * 200), version)


USUAL = dict(usual())


@pytest.mark.parametrize("name", USUAL)
def test_usual_requests_are_read_by_native_code_and_as_the_twins_read_them(name: str) -> None:
    assert agree(USUAL[name])


@pytest.mark.parametrize("name", USUAL)
def test_bytes_behind_a_request_are_passed_over(name: str) -> None:
    assert agree(USUAL[name] + b"behind")


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(produce_request(12, topic_data=[*produce_request(12).topic_data] * 2), 12),
        frame_of(ProduceRequest(), 12),
        frame_of(fetch_request(17, forgotten_topics_data=(ForgottenTopic(topic_id=TOPIC_ID),)), 17),
        frame_of(fetch_request(17, replica_state=ReplicaState(replica_id=4)), 17),
        frame_of(fetch_request(12, cluster_id="this"), 12),
        frame_of(fetch_request(17, topics=[*fetch_request(17).topics] * 2), 17),
        frame_of(ProduceRequest(), 2),
    ],
)
def test_other_shapes_are_for_the_twins(frame: bytes) -> None:
    assert not agree(frame)
    read_by_twins(memoryview(frame))


@pytest.mark.parametrize("name", USUAL)
def test_what_is_cut_short_is_refused_by_the_twins(name: str) -> None:
    frame = USUAL[name][:400]
    for size in range(len(frame)):
        if len(USUAL[name]) <= size:
            break
        assert not agree(frame[:size])
        with pytest.raises(ProtocolError):
            read_by_twins(memoryview(frame[:size]))


@pytest.mark.parametrize("name", [name for name in USUAL if "large" not in name])
def test_changed_bytes_mean_the_same_to_both(name: str) -> None:
    random = Random(name)
    values = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
    for _ in range(MUTATIONS):
        frame = bytearray(USUAL[name])
        for _ in range(random.choice((1, 1, 2, 4))):
            position = random.randrange(len(frame))
            match random.randrange(4):
                case 0:
                    frame[position] ^= 1 << random.randrange(8)
                case 1:
                    frame[position] = random.choice(values)
                case 2:
                    del frame[position]
                case _:
                    frame.insert(position, random.choice(values))
        agree(bytes(frame))


@given(data=st.data())
def test_any_request_means_the_same_to_both(data: st.DataObject) -> None:
    request_type, versions = data.draw(
        st.sampled_from([(ProduceRequest, PRODUCE_VERSIONS), (FetchRequest, FETCH_VERSIONS)])
    )
    version = data.draw(st.sampled_from(versions))
    agree(frame_of(data.draw(messages(request_type, version)), version, data.draw(st.none() | st.just("client"))))


@pytest.mark.parametrize("length", [b"\x01", b"\x81\x00", b"\x81\x80\x80\x80\x00", b"\x81\x80\x80\x80\x80\x00"])
def test_a_length_may_be_longer_than_it_has_to_be(length: bytes) -> None:
    """An empty batch: what is told as one more, in one byte, in more, and in more than there may be."""
    frame = frame_of(produce_request(12, b""), 12)
    assert frame.endswith(b"\0\0\0\x03\x01\0\0\0")
    longer = frame[:-4] + length + b"\0\0\0"

    if len(length) <= 5:
        assert agree(longer)
    else:
        assert not agree(longer)
        with pytest.raises(ProtocolError):
            read_by_twins(memoryview(longer))
