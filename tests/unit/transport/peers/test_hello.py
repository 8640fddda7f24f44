"""Who is let in, and what the others are told."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.config import PeerIdentity
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.hello import (
    Hello,
    Rejection,
    RejectReason,
    decode_hello,
    decode_rejection,
    encode_hello,
    encode_rejection,
    objection,
)

FOLDER, NEW_FOLDER = DirectoryId(UUID(int=1)), DirectoryId(UUID(int=2))
ME = PeerIdentity(node_id=NodeId(100), cluster_id="blue", incarnation=5, directory_id=NO_DIRECTORY)
HELLO = Hello(
    cluster_id="blue",
    node_id=NodeId(7),
    target_id=NodeId(100),
    incarnation=2**62,
    directory_id=FOLDER,
    target_directory_id=NEW_FOLDER,
)


def test_hello_comes_back_as_it_was() -> None:
    assert decode_hello(memoryview(encode_hello(HELLO))) == HELLO


def test_rejection_comes_back_as_it_was() -> None:
    rejection = Rejection(reason=RejectReason.WRONG_CLUSTER, message="not of this cluster")

    assert decode_rejection(memoryview(encode_rejection(rejection))) == rejection


@pytest.mark.parametrize("version", [b"\x00\x04", b"\x00\x09"], ids=["without channels", "of the future"])
def test_hello_of_another_version_is_refused_by_name_not_as_garbage(version: bytes) -> None:
    answer = decode_hello(memoryview(version + b" in another format"))

    assert isinstance(answer, Rejection)
    assert answer.reason == RejectReason.UNKNOWN_VERSION
    assert str(version[1]) in answer.message
    assert "only 5" in answer.message


@given(st.binary(max_size=60))
def test_garbage_is_never_a_hello(garbage: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_hello(memoryview(b"\x00\x05" + garbage))


UNREADABLE = pytest.mark.parametrize(
    "garbage",
    [b"\x81\xaacluster_id\xa2\xff\xfe", b"\x81\xa1x" + b"\x91" * 4000 + b"\xc0"],
    ids=["not UTF-8", "nested too deeply"],
)


@UNREADABLE
def test_hello_that_raises_other_errors_than_malformed_ones_is_refused_too(garbage: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_hello(memoryview(b"\x00\x05" + garbage))


@UNREADABLE
def test_rejection_that_raises_other_errors_than_malformed_ones_is_refused_too(garbage: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_rejection(memoryview(garbage))


@pytest.mark.parametrize("body", [b"", b"\x00"])
def test_hello_without_a_version_is_refused(body: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        decode_hello(memoryview(body))


def test_peer_of_the_cluster_is_let_in() -> None:
    assert objection(HELLO, ME) is None
    assert objection(HELLO, ME, expected=NodeId(7)) is None
    assert objection(HELLO, ME, known_directory=FOLDER) is None


def test_peer_that_does_not_say_which_data_folder_it_has_is_refused_where_that_is_known() -> None:
    silent = msgspec.structs.replace(HELLO, directory_id=NO_DIRECTORY)

    rejection = objection(silent, ME, known_directory=FOLDER)

    assert rejection is not None
    assert rejection.reason == RejectReason.OTHER_DIRECTORY


@pytest.mark.parametrize("cluster_id", ["green", "", "x" * 3_000])
def test_stranger_is_not_told_the_cluster_id(cluster_id: str) -> None:
    rejection = objection(msgspec.structs.replace(HELLO, cluster_id=cluster_id), ME)

    assert rejection is not None
    assert "blue" not in rejection.message
    assert "cluster_id" in rejection.message  # That is what an operator has to compare.
    assert len(rejection.message) < 500


def test_peer_that_lost_its_data_folder_is_refused_and_told_what_helps() -> None:
    rejection = objection(HELLO, ME, known_directory=NEW_FOLDER)

    assert rejection is not None
    assert rejection.reason == RejectReason.OTHER_DIRECTORY
    assert "remove it from the cluster" in rejection.message


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({"cluster_id": "green"}, None, RejectReason.WRONG_CLUSTER),
        ({"cluster_id": ""}, None, RejectReason.WRONG_CLUSTER),
        ({"target_id": 101}, None, RejectReason.WRONG_TARGET),
        ({"node_id": 100}, None, RejectReason.SAME_NODE_ID),
        ({}, NodeId(8), RejectReason.WRONG_TARGET),
    ],
)
def test_stranger_is_refused(changes: dict[str, object], expected: NodeId | None, reason: RejectReason) -> None:
    rejection = objection(msgspec.structs.replace(HELLO, **changes), ME, expected)

    assert rejection is not None
    assert rejection.reason == reason
