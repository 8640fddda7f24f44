"""Random members, clocks, logs and restarts against one group, judged by what must hold whatever happens."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorate.coordination.core.effects import Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    NO_GENERATION,
    NO_MEMBER_ID,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    JoinGroupResult,
    SyncGroupResult,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    Conversation,
    commit_request,
    join_request,
    partition,
    protocols,
    sync_request,
)

ASSIGNMENT = b"a share"
INSTANCES = st.none() | st.sampled_from(["one", "two"])
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",)])
DURATIONS_MS = st.sampled_from([1, 500, 1_000, 3_000, 5_999, 60_000])
WHICH = st.integers(0, 10)


class Client(NamedTuple):
    """What a client knows of itself; it may have been overtaken by events."""

    member_id: MemberId
    generation: int
    instance: str | None


class GroupUnderFire(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = GroupConfig(initial_rebalance_delay_ms=3_000, max_group_size=4, new_member_join_timeout_ms=120_000)
        self.talk = Conversation(config, log_commits=False)
        self.clients: list[Client] = []
        self.waiting_joins: dict[Token, str | None] = {}
        self.waiting_syncs: set[Token] = set()
        self.leaders: dict[int, str] = {}
        self.acknowledged_offset = -1
        self.next_offset = 0
        self.last_generation = 0

    def _group(self) -> ClassicGroup | None:
        return self.talk.shard._book.live.get(GROUP)

    def _client(self, which: int) -> Client:
        """One of the latest clients, counted from the end."""
        return self.clients[-1 - which % len(self.clients)]

    def _join(self, member_id: MemberId, instance: str | None, names: tuple[str, ...]) -> None:
        token = self.talk.send(join_request(member_id, group_instance_id=instance, protocols=protocols(*names)))
        self.waiting_joins[token] = instance
        self._collect()

    def _sync(self, client: Client) -> None:
        group = self._group()
        assignments = {} if group is None else {known.member_id: ASSIGNMENT for known in group.roster}
        request = sync_request(client.member_id, client.generation, assignments, client.instance)
        self.waiting_syncs.add(self.talk.send(request))
        self._collect()

    def _collect(self) -> None:
        """Take the answers that have come, and what clients learn from them."""
        for token, instance in list(self.waiting_joins.items()):
            if not self.talk.is_waiting(token):
                del self.waiting_joins[token]
                result = self.talk.reply(token, JoinGroupResult)
                self._check_leader(result)
                if result.member_id:
                    self.clients.append(Client(result.member_id, result.generation, instance))
        for token in list(self.waiting_syncs):
            if not self.talk.is_waiting(token):
                self.waiting_syncs.remove(token)
                synced = self.talk.reply(token, SyncGroupResult)
                assert synced.error is not ErrorCode.NONE or synced.assignment == ASSIGNMENT

    def _check_leader(self, result: JoinGroupResult) -> None:
        if result.error is ErrorCode.NONE and result.members and not result.skip_assignment:
            known = self.leaders.setdefault(result.generation, result.member_id)
            assert known == result.member_id, "two leaders in one generation"

    @initialize(size=st.integers(0, 3), instances=st.lists(INSTANCES, max_size=2, unique=True))
    def start_with_a_group(self, size: int, instances: list[str | None]) -> None:
        for instance in [None] * size + instances:
            self._join(NO_MEMBER_ID, instance, ("range", "sticky"))
            if instance is None:
                self._join(self.clients[-1].member_id, None, ("range", "sticky"))
        self.everybody_cooperates(log_commits=True)

    @rule(instance=INSTANCES, names=PROTOCOLS)
    def join_new(self, instance: str | None, names: tuple[str, ...]) -> None:
        self._join(NO_MEMBER_ID, instance, names)

    @precondition(lambda self: self.clients)
    @rule(which=WHICH, names=PROTOCOLS)
    def join_again(self, which: int, names: tuple[str, ...]) -> None:
        client = self._client(which)
        self._join(client.member_id, client.instance, names)

    @precondition(lambda self: self.clients)
    @rule(which=WHICH)
    def sync(self, which: int) -> None:
        self._sync(self._client(which))

    @rule(log_commits=st.booleans())
    def everybody_cooperates(self, log_commits: bool) -> None:
        """What well-behaved clients do: join, wait for the generation, and sync."""
        group = self._group()
        for member in [] if group is None else list(group.roster):
            self._join(member.member_id, member.group_instance_id, ("range", "sticky"))
        self.time_passes(3_000)
        newest = {client.member_id: client for client in self.clients}
        group = self._group()
        for member in [] if group is None else list(group.roster):
            if member.member_id in newest:
                self._sync(newest[member.member_id])
        if log_commits:
            self.log_commits()

    @precondition(lambda self: self.clients)
    @rule(which=WHICH)
    def heartbeat(self, which: int) -> None:
        client = self._client(which)
        self.talk.heartbeat(client.member_id, client.generation, client.instance)

    @precondition(lambda self: self.clients)
    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        client = self._client(which)
        self.talk.leave(client.member_id, client.instance)
        self._collect()

    @precondition(lambda self: self.clients)
    @rule(which=WHICH)
    def commit_offset_as_member(self, which: int) -> None:
        client = self._client(which)
        self._commit(client.member_id, client.generation)

    @rule()
    def commit_offset_without_membership(self) -> None:
        self._commit(NO_MEMBER_ID, NO_GENERATION)

    def _commit(self, member_id: MemberId, generation: int) -> None:
        self.next_offset += 1
        token = self.talk.send(commit_request(self.next_offset, member_id, generation))
        self.log_commits()
        if self.talk.reply(token, CommitOffsetsResult).errors[partition()] is ErrorCode.NONE:
            self.acknowledged_offset = self.next_offset

    @rule()
    def log_commits(self) -> None:
        self.talk.commit()
        self._collect()

    @rule()
    def log_refuses(self) -> None:
        if self.talk.uncommitted:
            self.talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
        self._collect()

    @rule(by_ms=DURATIONS_MS)
    def time_passes(self, by_ms: int) -> None:
        self.talk.advance(by_ms)
        self._collect()

    @rule()
    def fail_over(self) -> None:
        self.talk.lose_leadership()
        self._collect()
        assert not self.waiting_joins
        assert not self.waiting_syncs
        self.talk.restart()
        # A generation that was never stored may be given out again: nobody got an assignment in it.
        group = self._group()
        self.last_generation = 0 if group is None else group.generation
        self.leaders = {number: name for number, name in self.leaders.items() if number < self.last_generation}

    @rule()
    def delete_group(self) -> None:
        token = self.talk.send(DeleteGroup(group_id=GROUP))
        self.log_commits()
        if self.talk.reply(token, DeleteGroupResult).error is ErrorCode.NONE:
            self.acknowledged_offset = -1

    @invariant()
    def generation_only_grows(self) -> None:
        group = self._group()
        if group is None:
            # Only a group without members or anything stored can go.
            self.last_generation = 0
            self.leaders.clear()
            return
        assert group.generation >= self.last_generation
        self.last_generation = group.generation

    @invariant()
    def states_keep_their_promises(self) -> None:
        group = self._group()
        if group is None:
            return
        roster = list(group.roster)
        assert (group.state is GroupState.EMPTY) <= (not roster)
        assert (group.roster.leader is not None) == bool(roster)
        assert group.roster.leader is None or group.roster.leader in group.roster
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert roster
            assert all(member.join_token is None for member in roster)
            assert all(group.protocol_name in member.protocol_names for member in roster)
        if group.state is GroupState.STABLE:
            assert all(member.sync_token is None for member in roster)
            stored = self.talk.shard._book.state.stored_group(GROUP)
            assert stored is not None
            assert stored.generation == group.generation

    @invariant()
    def every_member_of_a_stable_group_has_an_assignment(self) -> None:
        described = self.talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult)
        if described.state is GroupState.STABLE:
            for member in described.members:
                assert member.assignment == ASSIGNMENT

    @invariant()
    def every_request_waits_in_one_place_and_only_there(self) -> None:
        group = self._group()
        parked: list[Token] = []
        for member in [] if group is None else group.roster:
            parked += [token for token in (member.join_token, member.sync_token) if token is not None]
        for append in self.talk.uncommitted:
            token = getattr(append.then, "token", None)
            if token in self.waiting_joins:
                parked.append(token)
        still_waiting = {t for t in self.waiting_joins.keys() | self.waiting_syncs if self.talk.is_waiting(t)}
        assert sorted(parked) == sorted(still_waiting)

    @invariant()
    def acknowledged_offset_is_what_a_fetch_finds(self) -> None:
        if self.acknowledged_offset >= 0:
            assert self.talk.committed_offset() == self.acknowledged_offset

    def teardown(self) -> None:
        """Whatever happened, once time passes everybody has an answer."""
        self.talk.log_commits = True
        self.talk.commit()
        for _ in range(20):
            self.talk.advance(60_000)
        assert all(not self.talk.is_waiting(token) for token in self.waiting_joins.keys() | self.waiting_syncs)
        group = self._group()
        assert group is None or group.state is GroupState.EMPTY


GroupUnderFire.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroupUnderFire = GroupUnderFire.TestCase
