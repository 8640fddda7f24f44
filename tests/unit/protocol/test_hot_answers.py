"""Answers to Produce and Fetch that native code writes: byte by byte those of the twin."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.native import choice
from quorate.kernel.ports import Buffer, FileRegion
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import encode_response
from quorate.protocol.hot_messages import HOT_ENCODERS, encode_hot_response
from quorate.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from quorate.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.protocol.schema import Response
from tests.unit.protocol.strategies import messages

pytestmark = pytest.mark.skipif(choice.module is None, reason=choice.reason)

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
TOPIC_IDS_FROM = 13
TOPIC_ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
NAMES = ("t", "tøpic", "t" * 126, "t" * 127, "t" * 249)


class Content:
    """A file that a region is of."""

    def read(self, position: int, length: int) -> bytes:
        return bytes(index % 251 for index in range(position, position + length))


def joined(buffers: Any) -> bytes:
    return b"".join(part.read(len(part)) if isinstance(part, FileRegion) else bytes(part) for part in buffers)


def agree(response: Response, version: int) -> bool:
    """Whether native code has written it, and then as the twin does."""
    written = HOT_ENCODERS[type(response)](-5, response, version)
    if written is None:
        return False
    assert joined(written) == joined(encode_response(-5, response, version))
    assert joined(encode_hot_response(-5, response, version)) == joined(written)
    return True


def produced(version: int, name: str = "tøpic", throttle_time_ms: int = 0, **changed: Any) -> ProduceResponse:
    fields = {"index": 3, "base_offset": 1 << 40, "log_start_offset": 7} | changed
    answers = (PartitionProduceResponse(**fields),)
    topic = (
        TopicProduceResponse(name=name, partition_responses=answers)
        if version < TOPIC_IDS_FROM
        else TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=answers)
    )
    return ProduceResponse(responses=[topic], throttle_time_ms=throttle_time_ms)


def fetched(version: int, records: Any, name: str = "tøpic", session_id: int = 0, **changed: Any) -> FetchResponse:
    fields: dict[str, Any] = {
        "partition_index": 3,
        "high_watermark": 1 << 40,
        "last_stable_offset": 9,
        "log_start_offset": 7,
    }
    data = (PartitionData(**fields | {"records": records, "aborted_transactions": None} | changed),)
    topic = (
        FetchableTopicResponse(topic=name, partitions=data)
        if version < TOPIC_IDS_FROM
        else FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)
    )
    return FetchResponse(responses=[topic], session_id=session_id, throttle_time_ms=12)


def usual() -> Iterator[tuple[Response, int]]:
    for version in PRODUCE_VERSIONS:
        for name in NAMES if version < TOPIC_IDS_FROM else NAMES[:1]:
            yield produced(version, name), version
        yield produced(version, throttle_time_ms=2**31 - 1, base_offset=2**63 - 1, log_append_time_ms=0), version
    for version in FETCH_VERSIONS:
        for name in NAMES if version < TOPIC_IDS_FROM else NAMES[:1]:
            yield fetched(version, b"", name), version
        for size in (1, 126, 127, 128, 16_383, 100_000):
            region: Any = FileRegion(Content(), 5, size)  # type: ignore[arg-type]
            yield fetched(version, region, session_id=77 if version >= 7 else 0), version
        yield fetched(version, b"records", aborted_transactions=()), version


def test_usual_answers_are_written_by_native_code_and_as_the_twin_writes_them() -> None:
    for response, version in usual():
        assert agree(response, version), f"{response} of version {version}"


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (produced(12, error_code=6), 12),
        (produced(12, error_message="why"), 12),
        (produced(12, current_leader=type(PartitionProduceResponse().current_leader)(leader_id=4)), 12),
        (produced(12, record_errors=(BatchIndexAndErrorMessage(batch_index=1),)), 12),
        (ProduceResponse(), 12),
        (ProduceResponse(responses=[TopicProduceResponse(name="t")]), 12),
        (ProduceResponse(responses=[*produced(12).responses] * 2), 12),
        (produced(2), 2),
        (fetched(12, b"", error_code=1), 12),
        (fetched(12, b"", preferred_read_replica=4), 12),
        (fetched(12, b"", aborted_transactions=[AbortedTransaction(producer_id=1)]), 12),
        (fetched(12, b"", diverging_epoch=EpochEndOffset(epoch=4)), 12),
        (fetched(12, b"", current_leader=LeaderIdAndEpoch(leader_id=4)), 12),
        (fetched(12, b"", snapshot_id=SnapshotId(epoch=4)), 12),
        (fetched(12, None), 12),
        (fetched(12, [b"one", b"two"]), 12),
        (FetchResponse(error_code=70), 12),
        (FetchResponse(responses=fetched(17, b"").responses, node_endpoints=[NodeEndpoint(node_id=4)]), 17),
    ],
)
def test_unusual_answers_are_for_the_twin(response: Response, version: int) -> None:
    assert not agree(response, version)
    encode_response(-5, response, version)


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (produced(12, index=2**31), 12),
        (produced(12, base_offset=2**63), 12),
        (produced(12, index="3"), 12),
        (produced(12, "\udc80"), 12),
        (produced(12, throttle_time_ms=2**31), 12),
        (fetched(4, b"", session_id=3), 4),
        (fetched(12, b"", high_watermark=-(2**63) - 1), 12),
        (fetched(12, b"", high_watermark=None), 12),
    ],
)
def test_what_no_frame_can_hold_is_refused_by_the_twin(response: Response, version: int) -> None:
    assert not agree(response, version)
    with pytest.raises(ProtocolError):
        encode_hot_response(-5, response, version)


@given(data=st.data())
def test_any_answer_is_the_same_from_both(data: st.DataObject) -> None:
    response_type, versions = data.draw(
        st.sampled_from([(ProduceResponse, PRODUCE_VERSIONS), (FetchResponse, FETCH_VERSIONS)])
    )
    version = data.draw(st.sampled_from(versions))
    agree(data.draw(messages(response_type, version)), version)


def test_records_go_out_as_they_are() -> None:
    region: Any = FileRegion(Content(), 5, 10)  # type: ignore[arg-type]
    records: Buffer = b"records"

    assert encode_hot_response(1, fetched(12, region), 12)[1] is region
    assert encode_hot_response(1, fetched(12, records), 12)[1] is records
