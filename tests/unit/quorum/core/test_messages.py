"""Every message survives its encoding, and hostile bytes are refused."""

import msgspec
import pytest

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind, Snapshot, SnapshotMeta
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    TermNotice,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    decode_message,
    encode_message,
)

TERM, ONE, TWO = Term(7), NodeId(1), NodeId(2)
ENTRY = Entry(Offset(5), Term(6), EntryKind.COMMAND, b"\x00\xff")
SNAPSHOT = Snapshot(SnapshotMeta(Offset(5), Term(6), Membership.of([Member(ONE, "host:1", is_voter=True)])), b"state")


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(
            term=TERM,
            sender=ONE,
            receiver=TWO,
            is_pre_vote=True,
            is_transfer=False,
            log_end_offset=Offset(3),
            last_term=Term(2),
        ),
        VoteResponse(term=TERM, sender=ONE, receiver=TWO, is_pre_vote=False, granted=True),
        AppendRequest(
            term=TERM,
            sender=ONE,
            receiver=TWO,
            base_offset=Offset(5),
            previous_term=Term(6),
            high_watermark=Offset(4),
            entries=(ENTRY,),
        ),
        AppendAccepted(term=TERM, sender=ONE, receiver=TWO, match_end_offset=Offset(2**40)),
        AppendRejected(
            term=TERM,
            sender=ONE,
            receiver=TWO,
            base_offset=Offset(5),
            diverging_end_offset=Offset(3),
            diverging_term=Term(2),
            is_recovering=True,
        ),
        Heartbeat(term=TERM, sender=ONE, receiver=TWO, high_watermark=Offset(4), read_round=9),
        HeartbeatResponse(term=TERM, sender=ONE, receiver=TWO, read_round=9),
        HeartbeatResponse(term=TERM, sender=ONE, receiver=TWO, read_round=9, recovered_end_offset=Offset(3)),
        InstallSnapshot(term=TERM, sender=ONE, receiver=TWO, snapshot=SNAPSHOT),
        TimeoutNow(term=TERM, sender=ONE, receiver=TWO),
        TermNotice(term=TERM, sender=ONE, receiver=TWO),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_survives_its_encoding(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x94\x63\x01\x02\x03", b"\x91\x08"], ids=repr)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_message(data)
