"""A scripted talk with one shard: a broker with a virtual clock and a log in memory stands around it."""

from itertools import count
from typing import TypeVar
from uuid import UUID

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CancelTimer,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.commands import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Command,
    CommitOffsets,
    CommitOffsetsResult,
    FetchOffsets,
    FetchOffsetsResult,
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    OffsetToCommit,
    Result,
    SyncGroup,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.effects import Append, Effect, Event, TimerKey
from quorate.coordination.groups.core.records import decode_record, encode_key, encode_value
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, PartitionIndex, TopicName, TopicPartition

GROUP = GroupId("orders-readers")
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0)
ResultType = TypeVar("ResultType", bound=Result)


class Conversation:
    def __init__(self, config: GroupConfig = AT_ONCE, *, log_commits: bool = True) -> None:
        self.config = config
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        # False: appends wait until the script commits or fails them.
        self.log_commits = log_commits
        self.uncommitted: list[Append] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[Token, Result] = {}
        self._tokens = count(1)
        self._uuids = count(1)
        self.restart()

    def restart(self) -> None:
        """Another coordinator takes over, with nothing but the log."""
        self.timers.clear()
        self.uncommitted.clear()
        self.shard = self.new_shard()
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.report(LogLoaded())

    def new_shard(self) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(self.config, lambda: UUID(int=next(self._uuids)))

    def send(self, command: Command) -> Token:
        token = Token(next(self._tokens))
        self.report(CommandReceived(token=token, command=command))
        return token

    def ask(self, command: Command, result_type: type[ResultType]) -> ResultType:
        return self.reply(self.send(command), result_type)

    def reply(self, token: Token, result_type: type[ResultType]) -> ResultType:
        result = self.replies[token]
        assert isinstance(result, result_type)
        return result

    def is_waiting(self, token: Token) -> bool:
        return token not in self.replies

    def report(self, event: Event) -> None:
        self._carry_out(self.shard.handle(event, self.now_ms))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token=token, result=result):
                    assert token not in self.replies, "answered twice"
                    self.replies[token] = result
                case SetTimer(key=key, at_ms=at_ms):
                    self.timers[key] = at_ms
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case AppendToLog():
                    self.uncommitted.append(effect)
        if self.log_commits:
            self.commit()

    def commit(self) -> None:
        while self.uncommitted:
            append = self.uncommitted.pop(0)
            self.log += [(encode_key(record), encode_value(record)) for record in append.records]
            self.report(AppendCommitted(append=append))

    def fail_append(self, error: ErrorCode) -> None:
        self.report(AppendFailed(append=self.uncommitted.pop(0), error=error))

    def lose_leadership(self) -> None:
        self.uncommitted.clear()
        self.report(LeadershipLost())

    def advance(self, by_ms: int) -> None:
        """Let time pass, firing each timer at its time."""
        end_ms = self.now_ms + by_ms
        while self.timers and min(self.timers.values()) <= end_ms:
            key = min(self.timers, key=lambda timer: self.timers[timer])
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.report(TimerFired(key=key))
        self.now_ms = end_ms

    def join(self, member_id: MemberId = NO_MEMBER_ID, /, **changes: object) -> Token:
        return self.send(join_request(member_id, **changes))

    def joined(self, token: Token) -> JoinGroupResult:
        return self.reply(token, JoinGroupResult)

    def new_member(self, **changes: object) -> tuple[MemberId, Token]:
        """A member that has its id and whose second JoinGroup is sent (KIP-394)."""
        member_id = self.joined(self.join(**changes)).member_id
        return member_id, self.join(member_id, **changes)

    def sync(
        self, joined: JoinGroupResult, assignments: dict[MemberId, bytes] | None = None, instance: str | None = None
    ) -> Token:
        return self.send(sync_request(joined.member_id, joined.generation, assignments, instance))

    def heartbeat(self, member_id: MemberId, generation: int, instance: str | None = None) -> ErrorCode:
        command = GroupHeartbeat(group_id=GROUP, generation=generation, member_id=member_id, group_instance_id=instance)
        return self.ask(command, GroupHeartbeatResult).error

    def leave(self, member_id: MemberId, instance: str | None = None) -> ErrorCode:
        leaving = LeavingMember(member_id=member_id, group_instance_id=instance)
        return self.ask(LeaveGroup(group_id=GROUP, members=(leaving,)), LeaveGroupResult).members[0].error

    def commit_offset(
        self, offset: int, member_id: MemberId = NO_MEMBER_ID, generation: int = NO_GENERATION, topic: str = "orders"
    ) -> ErrorCode:
        command = commit_request(offset, member_id, generation, topic)
        return self.ask(command, CommitOffsetsResult).errors[partition(topic)]

    def committed_offset(self, topic: str = "orders", group_id: GroupId = GROUP) -> int | None:
        command = FetchOffsets(group_id=group_id, topic_partitions=(partition(topic),))
        committed = self.ask(command, FetchOffsetsResult).offsets.get(partition(topic))
        return None if committed is None else committed.offset

    def joined_group(self, size: int = 2) -> list[JoinGroupResult]:
        """Members of one generation that have not synced yet, the leader first."""
        leader, token = self.new_member()
        tokens = [self.new_member()[1] for _ in range(size - 1)]
        if tokens:
            token = self.join(leader)
        return [self.joined(join) for join in (token, *tokens)]

    def stable_group(self, size: int = 2) -> list[JoinGroupResult]:
        """Members of one generation, the leader first, each with its own id as assignment."""
        members = self.joined_group(size)
        self.sync(members[0], {member.member_id: member.member_id.encode() for member in members})
        for follower in members[1:]:
            self.sync(follower)
        return members


def partition(topic: str = "orders", index: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(index))


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"


def protocols(*names: str, metadata: bytes = subscription("orders")) -> tuple[GroupProtocol, ...]:
    return tuple(GroupProtocol(name=name, metadata=metadata) for name in names)


def join_request(member_id: MemberId = NO_MEMBER_ID, /, **changes: object) -> JoinGroup:
    fields: dict[str, object] = {
        "group_id": GROUP,
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
        "require_known_member_id": changes.get("group_instance_id") is None,
        "supports_skip_assignment": False,
    }
    return JoinGroup(**(fields | changes))  # type: ignore[arg-type]


def sync_request(
    member_id: MemberId,
    generation: int,
    assignments: dict[MemberId, bytes] | None = None,
    instance: str | None = None,
) -> SyncGroup:
    return SyncGroup(
        group_id=GROUP,
        generation=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=None,
        protocol_name=None,
        assignments=assignments or {},
    )


def commit_request(
    offset: int, member_id: MemberId = NO_MEMBER_ID, generation: int = NO_GENERATION, topic: str = "orders"
) -> CommitOffsets:
    to_commit = OffsetToCommit(
        topic_partition=partition(topic), offset=Offset(offset), leader_epoch=LeaderEpoch(-1), metadata=""
    )
    return CommitOffsets(
        group_id=GROUP,
        generation=generation,
        member_id=member_id,
        group_instance_id=None,
        offsets=(to_commit,),
        retention_time_ms=None,
    )
