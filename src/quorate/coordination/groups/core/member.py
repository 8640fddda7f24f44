"""One member of a classic group, as its coordinator knows it."""

from dataclasses import dataclass

from quorate.coordination.core.effects import Token
from quorate.coordination.groups.core.commands import JoinGroup
from quorate.coordination.groups.core.group_protocol import GroupProtocol
from quorate.coordination.groups.core.records import StoredMember
from quorate.kernel.ids import MemberId


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
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
    def joining(cls, member_id: MemberId, command: JoinGroup) -> "Member":
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
    def stored(cls, stored: StoredMember, protocol_name: str | None) -> "Member":
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
