"""Who belongs to the quorum, and how that may change: one server at a time.

A membership holds from the moment its entry is in the log, committed or not (Raft thesis, section 4.1). Two successive
memberships differ in one member, so that any majority of one meets any majority of the other.
"""

import enum
from collections.abc import Iterable, Iterator
from functools import cached_property

import msgspec
from msgspec.structs import replace

from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, Offset, is_same_directory


class Member(msgspec.Struct, frozen=True, array_like=True):
    node_id: NodeId
    address: str  # Of its peer listener; opaque here.
    is_voter: bool
    # The data folder whose votes and acknowledgements count. First voters are members before anybody knows theirs.
    directory_id: DirectoryId = NO_DIRECTORY


class Membership(msgspec.Struct, frozen=True, array_like=True, dict=True):
    members: tuple[Member, ...] = ()  # Ordered by node id.

    @classmethod
    def of(cls, members: Iterable[Member]) -> "Membership":
        return cls(members=tuple(sorted(members, key=lambda member: member.node_id)))

    @cached_property
    def voters(self) -> frozenset[NodeId]:
        return frozenset(member.node_id for member in self.members if member.is_voter)

    @cached_property
    def learners(self) -> frozenset[NodeId]:
        return frozenset(member.node_id for member in self.members if not member.is_voter)

    @cached_property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.members)

    @property
    def quorum_size(self) -> int:
        return len(self.voters) // 2 + 1

    def is_quorum(self, node_ids: Iterable[NodeId]) -> bool:
        return len(self.voters.intersection(node_ids)) >= self.quorum_size

    def member(self, node_id: NodeId) -> Member | None:
        return next((member for member in self.members if member.node_id == node_id), None)

    def replacing(self, member: Member) -> "Membership":
        return Membership.of([*(other for other in self.members if other.node_id != member.node_id), member])

    def without(self, node_id: NodeId) -> "Membership":
        return Membership(members=tuple(member for member in self.members if member.node_id != node_id))


def encode_membership(membership: Membership) -> bytes:
    return msgspec.msgpack.encode(membership)


def decode_membership(payload: bytes) -> Membership:
    return decode_msgpack(payload, Membership)


class AddLearner(msgspec.Struct, frozen=True):
    node_id: NodeId
    address: str
    directory_id: DirectoryId = NO_DIRECTORY


class PromoteLearner(msgspec.Struct, frozen=True):
    node_id: NodeId


class DemoteVoter(msgspec.Struct, frozen=True):
    """It votes no more, and follows the log as a learner does."""

    node_id: NodeId


class RemoveMember(msgspec.Struct, frozen=True):
    node_id: NodeId


class UpdateMember(msgspec.Struct, frozen=True):
    """It has moved, or its data folder is known now. With another folder it would be another member."""

    node_id: NodeId
    address: str
    directory_id: DirectoryId = NO_DIRECTORY


MembershipChange = AddLearner | PromoteLearner | DemoteVoter | RemoveMember | UpdateMember


class ChangeRefusal(enum.StrEnum):
    """Why a change does not fit the membership it is meant for."""

    ALREADY_A_MEMBER = "already a member"
    NOT_A_MEMBER = "not a member"
    NOT_A_LEARNER = "not a learner"
    NOT_A_VOTER = "not a voter"
    LAST_VOTER = "the last voter cannot leave"
    OTHER_DIRECTORY = "another data folder"
    NO_CHANGE = "nothing would change"


def changed_membership(membership: Membership, change: MembershipChange) -> Membership | ChangeRefusal:
    member = membership.member(change.node_id)
    if isinstance(change, AddLearner):
        if member is not None:
            return ChangeRefusal.ALREADY_A_MEMBER
        return membership.replacing(
            Member(change.node_id, change.address, is_voter=False, directory_id=change.directory_id)
        )
    if member is None:
        return ChangeRefusal.NOT_A_MEMBER
    if isinstance(change, PromoteLearner):
        if member.is_voter:
            return ChangeRefusal.NOT_A_LEARNER
        return membership.replacing(replace(member, is_voter=True))
    if isinstance(change, UpdateMember):
        updated = updated_member(member, change)
        return updated if isinstance(updated, ChangeRefusal) else membership.replacing(updated)
    if isinstance(change, DemoteVoter) and not member.is_voter:
        return ChangeRefusal.NOT_A_VOTER
    if membership.voters == {change.node_id}:
        return ChangeRefusal.LAST_VOTER
    if isinstance(change, DemoteVoter):
        return membership.replacing(replace(member, is_voter=False))
    return membership.without(change.node_id)


def updated_member(member: Member, update: UpdateMember) -> Member | ChangeRefusal:
    if not is_same_directory(member.directory_id, update.directory_id):
        return ChangeRefusal.OTHER_DIRECTORY
    directory_id = member.directory_id if update.directory_id == NO_DIRECTORY else update.directory_id
    updated = replace(member, address=update.address, directory_id=directory_id)
    return ChangeRefusal.NO_CHANGE if updated == member else updated


class MembershipHistory:
    """The memberships of the part of the log that is held, so that a truncation can go back to an earlier one."""

    def __init__(self, base: Membership, base_end_offset: Offset) -> None:
        # (offset of the entry that brought it, membership), by offset; the first one stands for all compacted entries.
        self._history: list[tuple[int, Membership]] = [(base_end_offset - 1, base)]

    @property
    def current(self) -> Membership:
        return self._history[-1][1]

    @property
    def current_offset(self) -> int:
        """The offset of the entry that brought the current membership; below the log where no entry did."""
        return self._history[-1][0]

    def not_superseded(self, high_watermark: Offset) -> Iterator[Membership]:
        """The memberships that may turn out to hold: those not committed yet, and the last one that is."""
        for offset, membership in reversed(self._history):
            yield membership
            if offset < high_watermark:
                return

    def append(self, offset: Offset, membership: Membership) -> None:
        self._history.append((offset, membership))

    def truncate(self, end_offset: Offset) -> None:
        while self._history[-1][0] >= end_offset and len(self._history) > 1:
            self._history.pop()

    def at(self, end_offset: Offset) -> Membership:
        """The membership that holds once all entries before this offset are in."""
        return next(membership for offset, membership in reversed(self._history) if offset < end_offset)

    def compact(self, end_offset: Offset) -> None:
        while len(self._history) > 1 and self._history[1][0] < end_offset:
            del self._history[0]
