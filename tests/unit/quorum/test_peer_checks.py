"""Nothing that a peer says is taken before it has been read and judged."""

from uuid import UUID

import msgspec
import pytest

from quorate.kernel.ids import NO_DIRECTORY, BrokerEpoch, DirectoryId, NodeId, Offset, Term, TopicId, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import encode_commands
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.records import BrokerEndpoint, TopicCreated
from quorate.metadata.core.security_commands import RemoveExpiredTokens
from quorate.metadata.core.snapshot import encode_image
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.entries import Entry, EntryKind, Snapshot, SnapshotMeta
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.messages import AppendRequest, InstallSnapshot, TermNotice, encode_message
from quorate.quorum.entry_payload import encode_records
from quorate.quorum.peer_checks import check_metadata, command_objection, read_message, read_request
from quorate.transport.peers.errors import PeerProtocolError

ME, PEER, OTHER = NodeId(7), NodeId(100), NodeId(4001)
REGISTRATION = c.RegisterBroker(
    node_id=PEER,
    host="broker.example",
    port=9092,
    rack="a",
    incarnation=UUID(int=1),
    directory_id=DirectoryId(UUID(int=2)),
    peer_address="broker.example:9192",
    endpoints=(BrokerEndpoint(listener="SSL", host="broker.example", port=9093),),
)


NESTED = b"\x91" * 100_000 + b"\xc0"


def submit(*commands: c.Command) -> bytes:
    return q.encode(q.Submit(commands=encode_commands(commands), validate_only=False))


def test_a_message_of_another_than_its_connection_said_is_refused() -> None:
    message = TermNotice(term=Term(3), sender=PEER, receiver=ME)

    assert read_message(PEER, memoryview(encode_message(message))) == message
    with pytest.raises(PeerProtocolError):
        read_message(OTHER, memoryview(encode_message(message)))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x94\x63\x01\x02\x03",
        msgspec.msgpack.encode([9, 2**64 - 1, 1, 1, 1]),
        b"\x95\x07\x01\x01\x01\x92\x93\x01\x01\x91\x91\x93\x01\xa1\xff\xc3\xc0",  # An address that is not UTF-8.
        b"\x99\x05\x01\x01\x01\x01\x01" + NESTED,
    ],
    ids=["empty", "no value", "unknown", "number", "not UTF-8", "nested too deeply"],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        read_message(PEER, memoryview(payload))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93"])
def test_entries_that_cannot_be_replayed_are_refused_before_they_are_written(payload: bytes) -> None:
    def append(*payloads: bytes) -> AppendRequest:
        entries = tuple(Entry(Offset(at), Term(1), EntryKind.COMMAND, each) for at, each in enumerate(payloads))
        return AppendRequest(
            term=Term(1),
            sender=PEER,
            receiver=ME,
            base_offset=Offset(0),
            previous_term=Term(0),
            high_watermark=Offset(0),
            entries=entries,
        )

    record = TopicCreated(name=TopicName("orders"), topic_id=TopicId(UUID(int=3)))
    check_metadata(append(encode_records([record])))
    with pytest.raises(PeerProtocolError):
        check_metadata(append(encode_records([record]), payload))


def test_a_snapshot_that_cannot_be_installed_is_refused_before_it_is_written() -> None:
    def install(payload: bytes, end_offset: int = 0) -> InstallSnapshot:
        members = Membership.of([Member(PEER, "host:1", is_voter=True)])
        meta = SnapshotMeta(Offset(end_offset), Term(1), members)
        return InstallSnapshot(term=Term(1), sender=PEER, receiver=ME, snapshot=Snapshot(meta, payload))

    payload = encode_image(MetadataImage())
    check_metadata(install(payload))
    for wrong in (install(payload, end_offset=5), install(payload[:-3]), install(b""), install(b"\xc1" * 50)):
        with pytest.raises(PeerProtocolError):
            check_metadata(wrong)


def test_a_node_that_is_not_known_can_only_join() -> None:
    read_request(PEER, submit(REGISTRATION), is_known=False)
    for request in (
        submit(c.UnregisterBroker(node_id=OTHER)),
        submit(REGISTRATION, c.DeleteTopic(topic_id=TopicId(UUID(int=3)))),
        q.encode(q.Promote(node_id=PEER)),
        q.encode(q.Remove(node_id=OTHER)),
        q.encode(q.Describe()),
    ):
        read_request(PEER, request, is_known=True)
        with pytest.raises(PeerProtocolError):
            read_request(PEER, request, is_known=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"node_id": OTHER},
        {"directory_id": NO_DIRECTORY},
        {"fenced": False},
        {"host": ""},
        {"host": "x" * 300},
        {"host": "a\nb"},
        {"port": 0},
        {"port": 2**40},
        {"rack": "r" * 40_000},
        {"endpoints": (BrokerEndpoint(listener="", host="h", port=1),)},
        {"endpoints": (BrokerEndpoint(listener="A", host="a\nb", port=1),)},
        {"endpoints": (BrokerEndpoint(listener="A", host="h", port=0),)},
        {"endpoints": (BrokerEndpoint(listener="A", host="h", port=1), BrokerEndpoint(listener="A", host="h", port=2))},
        {"endpoints": tuple(BrokerEndpoint(listener=f"A{n}", host="h", port=1) for n in range(101))},
        {"peer_address": ""},
        {"peer_address": "nowhere"},
        {"peer_address": "host:99999"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_registration_that_would_end_every_node_is_refused(changes: dict[str, object]) -> None:
    assert command_objection(REGISTRATION, PEER) is None
    assert command_objection(msgspec.structs.replace(REGISTRATION, **changes), PEER) is not None


def test_nobody_speaks_for_others_or_in_the_leaders_place() -> None:
    epoch = BrokerEpoch(5)
    beat = q.BrokerHeartbeat(node_id=OTHER, broker_epoch=epoch, metadata_version=Offset(3))
    with pytest.raises(PeerProtocolError):
        read_request(PEER, q.encode(beat), is_known=True)
    for command in (
        c.AlterIsr(node_id=OTHER, broker_epoch=epoch, changes=()),
        c.FenceBroker(node_id=OTHER, broker_epoch=epoch),
        c.UnfenceBroker(node_id=PEER, broker_epoch=epoch),
        c.BeginControlledShutdown(node_id=OTHER, broker_epoch=epoch),
        c.FormCluster(cluster_id="green"),
        RemoveExpiredTokens(),
        c.AllocateProducerIds(count=2**62),
        c.AllocateProducerIds(count=-1),
        c.CreateTopic(name="wide", partition_count=2**40),
        c.CreateTopic(name="deep", replication_factor=2**40),
        c.CreatePartitions(name=TopicName("wide"), total_count=2**40),
    ):
        with pytest.raises(PeerProtocolError):
            read_request(PEER, submit(command), is_known=True)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\x80", b"\xff" * 9, submit(REGISTRATION)[:-9], b"\x81\xa1\xff\x00", b"\x81\xa1x" + NESTED],
    ids=["empty", "a number", "no kind", "no map", "cut", "not UTF-8", "nested too deeply"],
)
def test_what_is_no_request_is_refused(payload: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        read_request(PEER, payload, is_known=True)


@pytest.mark.parametrize("commands", [b"\xc1", b"\x91" + NESTED, b"\x91\x81\xa7command\xa1\xff"])
def test_commands_that_cannot_be_read_are_refused(commands: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        read_request(PEER, q.encode(q.Submit(commands=commands, validate_only=False)), is_known=True)
