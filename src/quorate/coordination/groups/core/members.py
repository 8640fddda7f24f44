"""The members of one classic group: who they are, who leads, and what protocol they agree on.

Static members (KIP-345) are known by their instance id; the member id behind it changes when the instance restarts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from quorate.coordination.core.effects import Token
from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.commands import NO_MEMBER_ID, JoinGroup
from quorate.coordination.groups.core.records import StoredMember
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicMember:
    """One member, as its coordinator knows it."""

    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]
    assignment: bytes = b""
    # The requests that wait for the rebalance; each gets exactly one reply, and a member waits for one thing only.
    join_token: Token | None = None
    sync_token: Token | None = None
    # True until the member got its first generation: it cannot heartbeat before.
    is_new: bool = False
    session_deadline_ms: int = 0
    # When the session timer will fire; never after the deadline, often before it (heartbeats move only the deadline).
    timer_at_ms: int | None = None

    @classmethod
    def joining(cls, member_id: MemberId, command: JoinGroup) -> "ClassicMember":
        return cls(
            member_id=member_id,
            group_instance_id=command.group_instance_id,
            client_id=command.client_id,
            client_host=command.client_host,
            session_timeout_ms=command.session_timeout_ms,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            protocols=command.protocols,
            is_new=True,
        )

    @classmethod
    def stored(cls, stored: StoredMember, protocol_name: str | None) -> "ClassicMember":
        return cls(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=(GroupProtocol(name=protocol_name or "", metadata=stored.subscription),),
            assignment=stored.assignment,
        )

    def to_stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol_name),
            assignment=assignment,
        )

    def rejoin(self, command: JoinGroup) -> None:
        self.protocols = command.protocols
        self.session_timeout_ms = command.session_timeout_ms
        self.rebalance_timeout_ms = command.rebalance_timeout_ms
        self.client_id = command.client_id
        self.client_host = command.client_host

    def metadata_for(self, protocol_name: str | None) -> bytes:
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(protocol.name for protocol in self.protocols)

    @property
    def is_waiting_on_coordinator(self) -> bool:
        """Whether silence is our doing: the client sends nothing while a request of its own is parked here."""
        return (self.join_token is not None and not self.is_new) or self.sync_token is not None


class Roster:
    """The members of one group by their ids, in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[MemberId, ClassicMember] = {}
        self._static_members: dict[str, ClassicMember] = {}
        # How many members support each protocol; counted on, because a group of thousands joins one by one.
        self._supporters: Counter[str] = Counter()
        # Set whenever there are members, and always one of them.
        self.leader: MemberId | None = None

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: MemberId) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: MemberId) -> ClassicMember:
        return self._members[member_id]

    def get(self, member_id: MemberId) -> ClassicMember | None:
        return self._members.get(member_id)

    def static_member(self, group_instance_id: str | None) -> ClassicMember | None:
        return None if group_instance_id is None else self._static_members.get(group_instance_id)

    def check(self, member_id: MemberId, group_instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and not an instance that another process has taken over."""
        if group_instance_id is not None:
            current = self._static_members.get(group_instance_id)
            if current is not None and current.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self._members
        assert member.member_id != NO_MEMBER_ID
        self._members[member.member_id] = member
        self._supporters.update(member.protocol_names)
        if member.group_instance_id is not None:
            self._static_members[member.group_instance_id] = member
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        self._supporters = self._supporters - Counter(member.protocol_names)
        if member.group_instance_id is not None:
            del self._static_members[member.group_instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def rejoin(self, member: ClassicMember, command: JoinGroup) -> None:
        """The member joins again, perhaps with other protocols."""
        self._supporters = self._supporters - Counter(member.protocol_names)
        member.rejoin(command)
        self._supporters.update(member.protocol_names)

    def rename(self, member: ClassicMember, member_id: MemberId) -> None:
        """Give a static member the id of its next incarnation; it keeps its place, and the lead if it has it."""
        if self.leader == member.member_id:
            self.leader = member_id
        self._members = {member_id if known is member else known_id: known for known_id, known in self._members.items()}
        member.member_id = member_id

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it joined, or else take the first member that did; False if nobody has."""
        joined = [member.member_id for member in self if member.join_token is not None]
        if not joined:
            return False
        if self.leader not in joined:
            self.leader = joined[0]
        return True

    @property
    def joined_count(self) -> int:
        return sum(member.join_token is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def common_protocols(self) -> set[str]:
        return {name for name, count in self._supporters.items() if count == len(self)}

    def agrees_with(self, protocol_names: Iterable[str]) -> bool:
        return not self.common_protocols().isdisjoint(protocol_names)

    def select_protocol(self) -> str:
        """Each member votes for the one it prefers among those that all support; the first of equals wins."""
        candidates = self.common_protocols()
        assert candidates, "a member was let in that shares no protocol with the others"
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates) for member in self
        )
        return votes.most_common(1)[0][0]
