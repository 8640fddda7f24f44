"""What no sound node says is refused before it changes anything; whatever is not refused breaks nothing."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Entry, EntryKind, HardState, Snapshot, SnapshotMeta
from quorate.quorum.core.events import MessageReceived, Propose, Tick
from quorate.quorum.core.membership import Member, Membership, encode_membership
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
)
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import Role
from quorate.quorum.core.sanity import MAX_OFFSET, MAX_TERM, TermAllowance, is_address, membership_objection

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
VOTERS = Membership.of(Member(node_id, f"host:{9000 + node_id}", is_voter=True) for node_id in (ONE, TWO, THREE))
TERM = Term(5)


def follower() -> RaftNode:
    """A node of term 5 whose log has three entries of the terms 1, 3 and 3; the first two are committed."""
    entries = [Entry(Offset(at), Term(term), EntryKind.COMMAND, b"") for at, term in enumerate((1, 3, 3))]
    node = RaftNode(
        node_id=ONE,
        config=RaftConfig(),
        jitter=lambda: 0.5,
        now_ms=0,
        bootstrap=VOTERS,
        hard_state=HardState(TERM, None),
        entries=entries,
    )
    step(node, Heartbeat(term=TERM, sender=TWO, receiver=ONE, high_watermark=Offset(2), read_round=0))
    return node


def leader() -> RaftNode:
    """The same node, elected for term 6, with its first entry of that term committed."""
    node = follower()
    node.step(Tick(now_ms=200_000))
    step(node, VoteResponse(term=Term(6), sender=TWO, receiver=ONE, is_pre_vote=True, granted=True))
    step(node, VoteResponse(term=Term(6), sender=TWO, receiver=ONE, is_pre_vote=False, granted=True))
    assert node.quorum_state.role is Role.LEADER
    step(node, AppendAccepted(term=Term(6), sender=TWO, receiver=ONE, match_end_offset=Offset(4)))
    return node


def step(node: RaftNode, message: Message) -> None:
    assert node.objection_to(message, 100_000) is None
    node.step(MessageReceived(message=message, now_ms=100_000))
    carry_out(node)


def carry_out(node: RaftNode) -> None:
    while (ready := node.ready()) is not None:
        node.advance(ready)


def append(base: int, previous: int, *entries: Entry, term: int = 5, high_watermark: int = 0) -> AppendRequest:
    return AppendRequest(
        term=Term(term),
        sender=TWO,
        receiver=ONE,
        base_offset=Offset(base),
        previous_term=Term(previous),
        high_watermark=Offset(high_watermark),
        entries=entries,
    )


def entry(offset: int, term: int, kind: EntryKind = EntryKind.COMMAND, payload: bytes = b"") -> Entry:
    return Entry(Offset(offset), Term(term), kind, payload)


def heartbeat(**fields: int) -> Heartbeat:
    given = {"term": 5, "high_watermark": 2, "read_round": 0} | fields
    return Heartbeat(
        term=Term(given["term"]),
        sender=TWO,
        receiver=ONE,
        high_watermark=Offset(given["high_watermark"]),
        read_round=given["read_round"],
    )


def snapshot(end: int, last_term: int, membership: Membership = VOTERS) -> InstallSnapshot:
    meta = SnapshotMeta(Offset(end), Term(last_term), membership)
    return InstallSnapshot(term=TERM, sender=TWO, receiver=ONE, snapshot=Snapshot(meta, b""))


def vote(end: int, last_term: int, term: int = 6) -> VoteRequest:
    return VoteRequest(
        term=Term(term),
        sender=TWO,
        receiver=ONE,
        is_pre_vote=False,
        is_transfer=True,
        log_end_offset=Offset(end),
        last_term=Term(last_term),
    )


@pytest.mark.parametrize("term", [2**62, 2**31, TERM + 2**20, -1])
@pytest.mark.parametrize("kind", [TermNotice, TimeoutNow])
def test_one_frame_cannot_use_up_the_terms(kind: type[TermNotice], term: int) -> None:
    node = follower()
    assert node.objection_to(kind(term=Term(term), sender=TWO, receiver=ONE), 0) is not None


def test_a_node_that_missed_many_elections_is_not_locked_out() -> None:
    node = follower()
    assert node.objection_to(heartbeat(term=TERM + 10_000), 0) is None


def test_repeated_jumps_get_no_further_than_elections_would() -> None:
    allowance, term, now_ms = TermAllowance(Term(1), 0), Term(1), 0
    for _ in range(1_000_000):  # Nearly three hours of attempts, one in ten milliseconds.
        now_ms += 10
        for jump in (2**16, 1_000, 1):
            if allowance.admits(Term(term + jump), term, now_ms):
                term = Term(term + jump)
                break
    assert 2**16 < term < 2**16 + 1_100_000 < MAX_TERM / 1_000


HOSTILE_TO_A_FOLLOWER: dict[str, Message] = {
    "for another node": TermNotice(term=TERM, sender=TWO, receiver=THREE),
    "vote: offset": vote(MAX_OFFSET + 1, 3),
    "vote: negative offset": vote(-1, 3),
    "vote: term of the log": vote(3, 7),
    "vote: an empty log with a term": vote(0, 3),
    "append: negative offset": append(-5, 3),
    "append: offset": append(MAX_OFFSET + 1, 3),
    "append: previous term": append(2, 9),
    "append: contradicts what is committed": append(2, 1),
    "append: negative high watermark": append(3, 3, high_watermark=-1),
    "append: entries do not follow": append(3, 3, entry(3, 5), entry(5, 5)),
    "append: entries elsewhere": append(3, 3, entry(2**60, 5)),
    "append: terms go back": append(3, 3, entry(3, 5), entry(4, 4)),
    "append: an entry of a later term": append(3, 3, entry(3, 6)),
    "append: an entry of no term": append(0, 0, entry(0, 0)),
    "append: garbage for a membership": append(3, 3, entry(3, 5, EntryKind.MEMBERSHIP, b"\xc1")),
    "append: nobody votes": append(3, 3, entry(3, 5, EntryKind.MEMBERSHIP, encode_membership(Membership()))),
    "heartbeat: beyond the log": heartbeat(high_watermark=4),
    "heartbeat: negative": heartbeat(high_watermark=-1),
    "heartbeat: round": heartbeat(read_round=2**63),
    "snapshot: offset": snapshot(2**63 - 1, 3),
    "snapshot: later than its term": snapshot(9, 6),
    "snapshot: contradicts what is committed": snapshot(9, 1),
    "snapshot: nobody votes": snapshot(9, 5, Membership()),
    "append: from another than the leader": msgspec.structs.replace(append(3, 3), sender=THREE),
    "heartbeat: from another than the leader": msgspec.structs.replace(heartbeat(), sender=THREE),
    "snapshot: from another than the leader": msgspec.structs.replace(snapshot(9, 5), sender=THREE),
    "append: a membership that is nested too deeply": append(
        3, 3, entry(3, 5, EntryKind.MEMBERSHIP, b"\x92\x90" + b"\x91" * 100_000 + b"\xc0")
    ),
    "handed over by another than the leader": TimeoutNow(term=TERM, sender=THREE, receiver=ONE),
}


@pytest.mark.parametrize("message", HOSTILE_TO_A_FOLLOWER.values(), ids=HOSTILE_TO_A_FOLLOWER.keys())
def test_a_follower_objects_to(message: Message) -> None:
    assert follower().objection_to(message, 100_000) is not None


HOSTILE_TO_A_LEADER: dict[str, Message] = {
    "another leader of its term": heartbeat(term=6),
    "an append in its term": append(4, 6, term=6),
    "accepts what was never sent": AppendAccepted(
        term=Term(6), sender=TWO, receiver=ONE, match_end_offset=Offset(2**40)
    ),
    "accepts nothing that there is": AppendAccepted(
        term=Term(6), sender=TWO, receiver=ONE, match_end_offset=Offset(-1)
    ),
    "rejects what was never sent": AppendRejected(
        term=Term(6),
        sender=TWO,
        receiver=ONE,
        base_offset=Offset(2**40),
        diverging_end_offset=Offset(0),
        diverging_term=Term(0),
    ),
    "diverges in the future": AppendRejected(
        term=Term(6),
        sender=TWO,
        receiver=ONE,
        base_offset=Offset(3),
        diverging_end_offset=Offset(2),
        diverging_term=Term(7),
    ),
    "confirms a read that nobody made": HeartbeatResponse(term=Term(6), sender=TWO, receiver=ONE, read_round=1),
    "has a log of no length": HeartbeatResponse(
        term=Term(6), sender=TWO, receiver=ONE, read_round=0, recovered_end_offset=Offset(-1)
    ),
}


@pytest.mark.parametrize("message", HOSTILE_TO_A_LEADER.values(), ids=HOSTILE_TO_A_LEADER.keys())
def test_a_leader_objects_to(message: Message) -> None:
    assert leader().objection_to(message, 100_000) is not None


def test_memberships_name_each_node_once_and_where_it_can_be_dialled() -> None:
    def of(*members: tuple[int, str]) -> str | None:
        return membership_objection(Membership(tuple(Member(NodeId(n), at, is_voter=True) for n, at in members)))

    assert of((1, "a:1"), (2, "[::1]:2")) is None
    assert of((1, "")) is None
    for wrong in ([(2, "a:1"), (1, "a:2")], [(1, "a:1"), (1, "a:1")], [(-1, "a:1")], [(2**31, "a:1")], [(1, "a")]):
        assert of(*wrong) is not None
    assert not is_address("a:" + "9" * 5_000)
    assert not is_address("a\n:1")
    assert not is_address("a:²")


@pytest.mark.parametrize("make", [follower, leader])
@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_not_objected_to_breaks_nothing(make: Callable[[], RaftNode], seed: int) -> None:
    """Hostile fields in every message, from other voters and from nobody."""
    random = Random(seed)
    node, now_ms, taken = make(), 200_000, 0
    for _ in range(400):
        now_ms += random.choice([0, 1, 50, 700])
        message = _any_message(random, node)
        if node.objection_to(message, now_ms) is None:
            taken += 1
            node.step(MessageReceived(message=message, now_ms=now_ms))
        if random.random() < 0.5:
            node.step(Tick(now_ms=now_ms))
        else:
            node.step(Propose(payload=b"", ticket=1, term=None, now_ms=now_ms))
        carry_out(node)
        assert node.quorum_state.term < 100_000
    assert taken


def _any_message(random: Random, node: RaftNode) -> Message:
    term = node.quorum_state.term

    def number(*near: int) -> int:
        about = [*near, 0, node.log_end_offset, node.high_watermark]
        far = [-1, -(2**63), 2**31, 2**62, 2**63 - 1]
        return random.choice(about) + random.choice([-1, 0, 0, 0, 1]) if random.random() < 0.9 else random.choice(far)

    def entries(base: int) -> tuple[Entry, ...]:
        first = number(term)
        return tuple(
            entry(base + at, first + random.choice([0, 0, at]), random.choice(list(EntryKind)), _payload(random))
            for at in range(random.choice([0, 1, 2, 5]))
        )

    said: dict[str, Any] = {
        "term": Term(number(term, term, term + 1)),
        "sender": random.choice([TWO, THREE, NodeId(9)]),
        "receiver": ONE,
    }
    base = number()
    match random.randrange(10):
        case 0:
            return VoteRequest(
                **said,
                is_pre_vote=random.random() < 0.5,
                is_transfer=random.random() < 0.5,
                log_end_offset=Offset(number()),
                last_term=Term(number(term)),
            )
        case 1:
            return VoteResponse(**said, is_pre_vote=random.random() < 0.5, granted=random.random() < 0.5)
        case 2 | 3:
            return AppendRequest(
                **said,
                base_offset=Offset(base),
                previous_term=Term(number(term, 3)),
                high_watermark=Offset(number()),
                entries=entries(base),
            )
        case 4:
            return AppendAccepted(**said, match_end_offset=Offset(number()))
        case 5:
            return AppendRejected(
                **said,
                base_offset=Offset(number()),
                diverging_end_offset=Offset(number()),
                diverging_term=Term(number(term)),
                is_recovering=random.random() < 0.3,
            )
        case 6:
            return Heartbeat(**said, high_watermark=Offset(number()), read_round=number())
        case 7:
            end = Offset(number()) if random.random() < 0.3 else None
            return HeartbeatResponse(**said, read_round=number(), recovered_end_offset=end)
        case 8:
            meta = SnapshotMeta(Offset(number()), Term(number(term)), random.choice([VOTERS, Membership()]))
            return InstallSnapshot(**said, snapshot=Snapshot(meta, b""))
        case _:
            return TimeoutNow(**said) if random.random() < 0.5 else TermNotice(**said)


def _payload(random: Random) -> bytes:
    return random.choice([b"", b"\xc1", encode_membership(VOTERS), encode_membership(Membership())])
