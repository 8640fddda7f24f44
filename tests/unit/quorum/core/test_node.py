"""The contract between a node and its shell: what a Ready holds and when, and what may never happen."""

from uuid import UUID

import msgspec
import pytest

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, Offset, QuorumLeader, Term
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Entry, EntryKind, HardState, InvariantBroken, Snapshot, SnapshotMeta
from quorate.quorum.core.events import (
    Compact,
    MessageReceived,
    PeerDied,
    PeerReachable,
    Propose,
    ProposeMembership,
    ReadIndex,
    Tick,
)
from quorate.quorum.core.membership import AddLearner, Member, Membership, MembershipChange, RemoveMember, UpdateMember
from quorate.quorum.core.messages import AppendAccepted, AppendRequest, Heartbeat, Message, VoteRequest, VoteResponse
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.outcomes import (
    ProposalAccepted,
    ProposalCommitted,
    ProposalUncertain,
    ReadReady,
    Refusal,
    Refused,
)
from quorate.quorum.core.ready import Ready, Role

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
FIRST_TERM = Term(1)


def members(*node_ids: NodeId) -> Membership:
    return Membership.of(Member(node_id, "", is_voter=True) for node_id in node_ids)


def node_of(*voters: NodeId, **config: int) -> RaftNode:
    return RaftNode(
        node_id=ONE,
        config=RaftConfig(**config),
        jitter=lambda: 0.5,
        now_ms=0,
        bootstrap=members(*voters),
    )


def carry_out(node: RaftNode) -> list[Ready]:
    readies = []
    while (ready := node.ready()) is not None:
        readies.append(ready)
        node.advance(ready)
    return readies


def receive(node: RaftNode, message: Message) -> None:
    node.step(MessageReceived(now_ms=0, message=message))


def leader_of_three(**config: int) -> RaftNode:
    """Elected in term 1, its first entry committed by node 2 and applied."""
    node = node_of(ONE, TWO, THREE, **config)
    node.step(Tick(now_ms=10_000))
    for is_pre_vote in (True, False):
        carry_out(node)
        receive(node, VoteResponse(term=FIRST_TERM, sender=TWO, receiver=ONE, is_pre_vote=is_pre_vote, granted=True))
    carry_out(node)
    accept(node, TWO, 1)
    carry_out(node)
    assert node.quorum_state.can_decide
    return node


def accept(node: RaftNode, peer: NodeId, end_offset: int) -> None:
    receive(node, AppendAccepted(term=FIRST_TERM, sender=peer, receiver=ONE, match_end_offset=Offset(end_offset)))


def append_from_leader(
    base_offset: int,
    *entries: Entry,
    term: int = 1,
    previous_term: int = 0,
    leader: NodeId = TWO,
    high_watermark: int = 0,
) -> AppendRequest:
    return AppendRequest(
        term=Term(term),
        sender=leader,
        receiver=ONE,
        base_offset=Offset(base_offset),
        previous_term=Term(previous_term),
        high_watermark=Offset(high_watermark),
        entries=entries,
    )


def vote_request(candidate: NodeId) -> VoteRequest:
    return VoteRequest(
        term=FIRST_TERM,
        sender=candidate,
        receiver=ONE,
        is_pre_vote=False,
        is_transfer=False,
        log_end_offset=Offset(0),
        last_term=Term(0),
    )


def test_a_leader_counts_its_own_entry_only_once_its_disk_has_it() -> None:
    node = leader_of_three()
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))
    ready = node.ready()
    assert ready is not None
    assert [entry.payload for entry in ready.entries] == [b"x"]

    accept(node, TWO, 2)
    assert node.high_watermark == 1

    node.advance(ready)
    assert node.high_watermark == 2


def test_a_majority_of_others_commits_without_the_leaders_disk() -> None:
    node = leader_of_three()
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))
    node.ready()

    accept(node, TWO, 2)
    accept(node, THREE, 2)

    assert node.high_watermark == 2


def test_appends_of_a_settled_leader_need_not_wait_for_its_disk() -> None:
    node = leader_of_three()
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))

    ready = node.ready()

    assert ready is not None
    assert [(message.receiver, len(message.entries)) for message in ready.early_messages] == [(TWO, 1)]
    assert ready.messages == []


def test_nothing_overtakes_a_new_term_on_its_way_to_the_disk() -> None:
    node = RaftNode(
        node_id=ONE,
        config=RaftConfig(),
        jitter=lambda: 0.5,
        now_ms=0,
        bootstrap=Membership.of([Member(ONE, "", is_voter=True), Member(TWO, "", is_voter=False)]),
    )
    node.step(Tick(now_ms=10_000))

    ready = node.ready()

    assert ready is not None
    assert ready.hard_state == HardState(FIRST_TERM, ONE)
    assert ready.early_messages == []
    assert [type(message) for message in ready.messages] == [AppendRequest]


def test_a_leader_decides_only_after_its_first_entry_is_applied() -> None:
    node = node_of(ONE)
    node.step(Tick(now_ms=10_000))
    node.step(Propose(now_ms=0, payload=b"early", ticket=1))
    first, second, third = carry_out(node)

    assert first.finished == [Refused(1, Refusal.LEADER_NOT_READY, QuorumLeader(ONE, FIRST_TERM))]
    assert [entry.kind for entry in second.committed] == [EntryKind.NO_OP]
    assert second.quorum_state is None
    assert third.quorum_state is not None
    assert third.quorum_state.can_decide


def test_a_decision_of_another_term_is_refused() -> None:
    node = leader_of_three()
    node.step(Propose(now_ms=0, payload=b"x", ticket=1, term=Term(0)))
    node.step(Propose(now_ms=0, payload=b"x", ticket=2, term=FIRST_TERM))

    (ready,) = carry_out(node)

    assert ready.finished == [
        Refused(1, Refusal.STALE_TERM, QuorumLeader(ONE, FIRST_TERM)),
        ProposalAccepted(2, Offset(1), FIRST_TERM),
    ]


def test_proposals_are_refused_beyond_a_bound() -> None:
    node = leader_of_three(max_uncommitted_entries=1)
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))
    node.step(Propose(now_ms=0, payload=b"y", ticket=2))

    (ready,) = carry_out(node)

    assert Refused(2, Refusal.TOO_MANY_UNCOMMITTED, QuorumLeader(ONE, FIRST_TERM)) in ready.finished


def test_proposals_made_while_the_disk_works_share_one_append() -> None:
    node = leader_of_three()
    accept(node, THREE, 1)
    carry_out(node)
    for ticket in range(3):
        node.step(Propose(now_ms=0, payload=b"x", ticket=ticket))

    (ready,) = carry_out(node)

    assert [(message.receiver, len(message.entries)) for message in ready.early_messages] == [(TWO, 3), (THREE, 3)]


def test_a_single_voter_commits_and_reads_on_its_own() -> None:
    node = node_of(ONE)
    node.step(Tick(now_ms=10_000))
    carry_out(node)
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))
    node.step(ReadIndex(now_ms=0, ticket=2))

    outcomes = [outcome for ready in carry_out(node) for outcome in ready.finished]

    assert outcomes == [
        ProposalAccepted(1, Offset(1), FIRST_TERM),
        ReadReady(2, Offset(1)),
        ProposalCommitted(1, Offset(1)),
    ]
    assert node.next_deadline_ms is None


def test_what_is_truncated_while_the_disk_works_is_written_again() -> None:
    node = node_of(ONE, TWO, THREE)
    old = [Entry(Offset(i), FIRST_TERM, EntryKind.COMMAND, b"old") for i in range(3)]
    new = Entry(Offset(1), Term(2), EntryKind.COMMAND, b"new")
    receive(node, append_from_leader(0, *old))
    out = node.ready()
    assert out is not None
    assert out.entries == old

    receive(node, append_from_leader(1, new, term=2, previous_term=1, leader=THREE))
    node.advance(out)

    ready = node.ready()
    assert ready is not None
    assert ready.entries == [new]


def test_a_follower_commits_no_further_than_it_was_compared() -> None:
    """The tail may be another leader's, however far the high watermark of this one is."""
    node = node_of(ONE, TWO, THREE)
    receive(node, append_from_leader(0, *(Entry(Offset(i), FIRST_TERM, EntryKind.COMMAND, b"") for i in range(3))))

    receive(node, append_from_leader(1, term=2, previous_term=1, leader=THREE, high_watermark=3))

    assert node.high_watermark == 1


def test_a_node_votes_once_in_a_term() -> None:
    node = node_of(ONE, TWO, THREE)
    for candidate in (TWO, THREE, TWO):
        receive(node, vote_request(candidate))

    (ready,) = carry_out(node)

    assert [message.granted for message in ready.messages if isinstance(message, VoteResponse)] == [True, False, True]
    assert ready.hard_state == HardState(FIRST_TERM, TWO)


def test_a_restarted_node_remembers_its_vote() -> None:
    node = RaftNode(
        node_id=ONE,
        config=RaftConfig(),
        jitter=lambda: 0.5,
        now_ms=0,
        bootstrap=members(ONE, TWO, THREE),
        hard_state=HardState(FIRST_TERM, TWO),
    )
    receive(node, vote_request(THREE))

    (ready,) = carry_out(node)

    assert [message.granted for message in ready.messages if isinstance(message, VoteResponse)] == [False]


def test_membership_does_not_change_before_the_leaders_first_entry_is_applied() -> None:
    """Else two leaders could each change a membership that the other one's change is unknown to."""
    node = node_of(ONE)
    node.step(Tick(now_ms=10_000))
    node.step(ProposeMembership(now_ms=0, change=AddLearner(TWO, ""), ticket=1))

    ready = carry_out(node)[0]

    assert ready.finished == [Refused(1, Refusal.LEADER_NOT_READY, QuorumLeader(ONE, FIRST_TERM))]


def test_a_leader_knows_the_data_folder_of_a_member_until_its_removal_is_committed() -> None:
    """It still counts on what the member has, which must not be another one with an empty disk."""
    node = leader_of_three()
    folder = DirectoryId(UUID(int=1))
    changes: list[MembershipChange] = [UpdateMember(THREE, "", folder), RemoveMember(THREE)]
    for offset, change in enumerate(changes, start=2):
        node.step(ProposeMembership(now_ms=0, change=change, ticket=offset))
        carry_out(node)
        assert node.directory_of(THREE) == folder
        accept(node, TWO, offset)
        carry_out(node)
    assert node.directory_of(THREE) == NO_DIRECTORY


def test_a_proposal_under_an_installed_snapshot_is_uncertain() -> None:
    node = leader_of_three()
    node.step(Propose(now_ms=0, payload=b"x", ticket=1))
    carry_out(node)
    node._state.install(Snapshot(SnapshotMeta(Offset(9), Term(2), members(ONE, TWO, THREE)), b""))

    (ready,) = carry_out(node)

    assert ready.finished == [ProposalUncertain(1)]
    assert ready.snapshot is not None


def test_a_learner_waits_for_nothing() -> None:
    node = node_of(TWO, THREE)

    assert node.quorum_state.role is Role.LEARNER
    assert node.next_deadline_ms is None


def test_an_idle_follower_wakes_only_for_its_election() -> None:
    node = node_of(ONE, TWO, THREE)
    heartbeat = Heartbeat(term=FIRST_TERM, sender=TWO, receiver=ONE, high_watermark=Offset(0), read_round=0)
    node.step(MessageReceived(now_ms=5_000, message=heartbeat))

    assert node.next_deadline_ms == 5_900


def test_a_tick_before_the_deadline_does_nothing() -> None:
    node = node_of(ONE, TWO, THREE)
    carry_out(node)
    assert node.next_deadline_ms is not None

    node.step(Tick(now_ms=node.next_deadline_ms - 1))

    assert node.ready() is None


def test_a_message_for_another_node_is_ignored() -> None:
    node = node_of(ONE, TWO, THREE)
    carry_out(node)
    receive(node, Heartbeat(term=Term(9), sender=TWO, receiver=THREE, high_watermark=Offset(0), read_round=0))

    assert node.ready() is None


def test_two_leaders_of_one_term_stop_the_node() -> None:
    with pytest.raises(InvariantBroken, match="both lead term 1"):
        receive(leader_of_three(), append_from_leader(0))


def test_one_ready_is_out_at_a_time() -> None:
    node = node_of(ONE, TWO, THREE)
    ready = node.ready()
    assert ready is not None
    with pytest.raises(InvariantBroken, match="not advanced"):
        node.ready()

    node.advance(ready)
    with pytest.raises(InvariantBroken, match="not the one"):
        node.advance(ready)


def test_a_snapshot_of_what_was_not_applied_stops_the_node() -> None:
    node = leader_of_three()
    with pytest.raises(InvariantBroken, match="applied is only 1"):
        node.step(Compact(now_ms=0, snapshot=Snapshot(SnapshotMeta(Offset(2), FIRST_TERM, members(ONE)), b"")))


@pytest.mark.parametrize(
    "wrong", [{"heartbeat_interval_ms": 600}, {"election_timeout_max_ms": 600}, {"pre_vote_timeout_min_ms": 300}]
)
def test_timeouts_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="need 0 <"):
        RaftConfig(**wrong)


def test_new_node_that_reaches_a_majority_asks_for_votes_at_once() -> None:
    node = node_of(ONE, TWO, THREE)
    waits_until_ms = node.next_deadline_ms
    assert waits_until_ms is not None

    node.step(PeerReachable(now_ms=0, peer=THREE))

    assert node.next_deadline_ms is not None
    assert node.next_deadline_ms <= RaftConfig().connection_jitter_ms < waits_until_ms


def test_node_that_reaches_only_a_minority_waits() -> None:
    node = node_of(ONE, TWO, THREE, NodeId(4), NodeId(5))
    waits_until_ms = node.next_deadline_ms

    node.step(PeerReachable(now_ms=0, peer=TWO))
    node.step(PeerDied(now_ms=0, peer=TWO))
    node.step(PeerReachable(now_ms=0, peer=THREE))

    assert node.next_deadline_ms == waits_until_ms


def test_follower_that_has_given_its_vote_does_not_disturb_the_candidate_when_connections_come_up() -> None:
    node = node_of(ONE, TWO, THREE)
    receive(node, vote_request(TWO))
    waits_until_ms = node.next_deadline_ms

    node.step(PeerReachable(now_ms=0, peer=TWO))

    assert node.next_deadline_ms == waits_until_ms


def test_pre_vote_that_came_before_the_news_of_the_leaders_end_is_answered_with_it() -> None:
    node = node_of(ONE, TWO, THREE)
    receive(node, append_from_leader(0, leader=TWO))
    carry_out(node)
    pre_vote = msgspec.structs.replace(vote_request(THREE), term=Term(2), is_pre_vote=True)

    receive(node, pre_vote)
    assert not carry_out(node)

    node.step(PeerDied(now_ms=0, peer=TWO))
    answers = [message for ready in carry_out(node) for message in ready.messages]
    assert [(each.receiver, each.granted) for each in answers if isinstance(each, VoteResponse)] == [(THREE, True)]


def test_pre_vote_of_an_earlier_term_is_not_dug_up() -> None:
    node = node_of(ONE, TWO, THREE)
    receive(node, append_from_leader(0, leader=TWO))
    receive(node, msgspec.structs.replace(vote_request(THREE), term=Term(2), is_pre_vote=True))
    receive(node, append_from_leader(0, leader=TWO, term=2))
    carry_out(node)

    node.step(PeerDied(now_ms=0, peer=TWO))

    assert not [message for ready in carry_out(node) for message in ready.messages]
