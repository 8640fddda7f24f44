"""Which membership changes fit, and what a truncation or a compaction leaves of their history."""

from uuid import UUID

import msgspec
import pytest

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, Offset
from quorate.quorum.core.membership import (
    AddLearner,
    ChangeRefusal,
    DemoteVoter,
    Member,
    Membership,
    MembershipChange,
    MembershipHistory,
    PromoteLearner,
    RemoveMember,
    UpdateMember,
    changed_membership,
    decode_membership,
    encode_membership,
)

ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))
VOTER = Member(ONE, "one:1", is_voter=True)
OTHER_VOTER = Member(TWO, "two:1", is_voter=True)
FOLDER, OTHER_FOLDER = DirectoryId(UUID(int=1)), DirectoryId(UUID(int=2))
KNOWN_VOTER = Member(ONE, "one:1", is_voter=True, directory_id=FOLDER)
LEARNER = Member(FOUR, "four:1", is_voter=False)
MEMBERSHIP = Membership.of([LEARNER, OTHER_VOTER, VOTER])


def changed_for_sure(membership: Membership, change: MembershipChange) -> Membership:
    changed = changed_membership(membership, change)
    assert isinstance(changed, Membership)
    return changed


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (AddLearner(THREE, "three:1"), [VOTER, OTHER_VOTER, Member(THREE, "three:1", is_voter=False), LEARNER]),
        (AddLearner(FOUR, "elsewhere:1"), ChangeRefusal.ALREADY_A_MEMBER),
        (PromoteLearner(FOUR), [VOTER, OTHER_VOTER, Member(FOUR, "four:1", is_voter=True)]),
        (PromoteLearner(ONE), ChangeRefusal.NOT_A_LEARNER),
        (PromoteLearner(THREE), ChangeRefusal.NOT_A_MEMBER),
        (DemoteVoter(ONE), [Member(ONE, "one:1", is_voter=False), OTHER_VOTER, LEARNER]),
        (DemoteVoter(FOUR), ChangeRefusal.NOT_A_VOTER),
        (DemoteVoter(THREE), ChangeRefusal.NOT_A_MEMBER),
        (RemoveMember(ONE), [OTHER_VOTER, LEARNER]),
        (RemoveMember(FOUR), [VOTER, OTHER_VOTER]),
        (RemoveMember(THREE), ChangeRefusal.NOT_A_MEMBER),
        (UpdateMember(FOUR, "new:1"), [VOTER, OTHER_VOTER, Member(FOUR, "new:1", is_voter=False)]),
        (UpdateMember(FOUR, "four:1"), ChangeRefusal.NO_CHANGE),
        (UpdateMember(ONE, "one:1", FOLDER), [KNOWN_VOTER, OTHER_VOTER, LEARNER]),
        (UpdateMember(THREE, "new:1"), ChangeRefusal.NOT_A_MEMBER),
    ],
)
def test_a_change_touches_one_member(change: MembershipChange, expected: list[Member] | ChangeRefusal) -> None:
    changed = changed_membership(MEMBERSHIP, change)

    assert (list(changed.members) if isinstance(changed, Membership) else changed) == expected


def test_a_member_stays_the_one_with_its_data_folder_until_it_is_removed() -> None:
    membership = Membership.of([KNOWN_VOTER, OTHER_VOTER])
    assert changed_membership(membership, UpdateMember(ONE, "one:1", OTHER_FOLDER)) is ChangeRefusal.OTHER_DIRECTORY
    assert changed_membership(membership, UpdateMember(ONE, "one:1")) is ChangeRefusal.NO_CHANGE

    for change in (UpdateMember(ONE, "new:1"), DemoteVoter(ONE), PromoteLearner(ONE)):
        membership = changed_for_sure(membership, change)
        assert [member.directory_id for member in membership.members] == [FOLDER, NO_DIRECTORY]

    membership = changed_for_sure(membership, RemoveMember(ONE))
    membership = changed_for_sure(membership, AddLearner(ONE, "one:1", OTHER_FOLDER))
    assert [member.directory_id for member in membership.members] == [OTHER_FOLDER, NO_DIRECTORY]


def test_a_membership_from_before_data_folders_had_ids_is_read() -> None:
    assert decode_membership(msgspec.msgpack.encode([[[1, "one:1", True]]])) == Membership.of([VOTER])


def test_the_last_voter_cannot_leave_even_when_learners_stay() -> None:
    membership = Membership.of([VOTER, LEARNER])
    assert changed_membership(membership, RemoveMember(ONE)) is ChangeRefusal.LAST_VOTER
    assert changed_membership(membership, DemoteVoter(ONE)) is ChangeRefusal.LAST_VOTER


@pytest.mark.parametrize(("voters", "quorum_size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_quorum_is_more_than_half_of_the_voters_and_learners_do_not_count(voters: int, quorum_size: int) -> None:
    members = [Member(NodeId(number), "", is_voter=True) for number in range(voters)]
    learner = Member(NodeId(99), "", is_voter=False)
    membership = Membership.of([*members, learner])
    ids = [member.node_id for member in members]

    assert membership.quorum_size == quorum_size
    assert membership.is_quorum(ids[:quorum_size])
    assert not membership.is_quorum([*ids[: quorum_size - 1], learner.node_id])


def test_nobody_is_a_quorum_of_an_empty_membership() -> None:
    assert not Membership().is_quorum([ONE])


def test_a_membership_survives_its_encoding() -> None:
    for membership in (MEMBERSHIP, MEMBERSHIP.replacing(KNOWN_VOTER)):
        assert decode_membership(encode_membership(membership)) == membership


def history() -> tuple[MembershipHistory, list[Membership]]:
    """Memberships since offsets 0 (the bootstrap), 3 and 7."""
    memberships = [Membership.of([VOTER]), Membership.of([VOTER, OTHER_VOTER]), MEMBERSHIP]
    history = MembershipHistory(memberships[0], Offset(0))
    history.append(Offset(3), memberships[1])
    history.append(Offset(7), memberships[2])
    return history, memberships


@pytest.mark.parametrize(("end_offset", "expected"), [(8, 2), (7, 1), (4, 1), (3, 0), (0, 0)])
def test_a_truncation_goes_back_to_the_membership_of_that_time(end_offset: int, expected: int) -> None:
    past, memberships = history()
    assert past.at(Offset(end_offset)) == memberships[expected]

    past.truncate(Offset(end_offset))

    assert past.current == memberships[expected]


@pytest.mark.parametrize(("end_offset", "left"), [(3, [0, 1, 2]), (4, [1, 2]), (8, [2])])
def test_a_compaction_keeps_the_membership_in_force_at_its_end(end_offset: int, left: list[int]) -> None:
    past, memberships = history()

    past.compact(Offset(end_offset))

    assert list(past.not_superseded(Offset(0))) == [memberships[index] for index in reversed(left)]


@pytest.mark.parametrize(("high_watermark", "expected"), [(0, [2, 1, 0]), (4, [2, 1]), (7, [2, 1]), (8, [2])])
def test_what_is_committed_supersedes_what_was_before(high_watermark: int, expected: list[int]) -> None:
    past, memberships = history()

    assert list(past.not_superseded(Offset(high_watermark))) == [memberships[index] for index in expected]
