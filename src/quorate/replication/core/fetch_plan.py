"""Which partitions to fetch from which leader next.

A partition is in one request at a time. One that fails waits alone, longer each time; the others go on. A leader fills
its answer in the order of the request up to a byte limit, so a partition that was answered goes to the end of the line.
"""

from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionLeader

PartitionT = TypeVar("PartitionT", bound=Hashable)


class FetchPlanConfig(msgspec.Struct, frozen=True, kw_only=True):
    backoff_ms: int = 20
    backoff_max_ms: int = 1_000


class PlannedFetch(msgspec.Struct, Generic[PartitionT], frozen=True, kw_only=True, gc=False):
    """One partition of a request; comes back with the outcome, so that one of an earlier epoch is known as such."""

    partition: PartitionT
    leader: NodeId
    leader_epoch: LeaderEpoch


class _Followed:
    __slots__ = ("failures", "in_flight", "leader", "ready_ms")

    def __init__(self, leader: PartitionLeader) -> None:
        self.leader = leader
        self.in_flight = False
        self.failures = 0
        self.ready_ms = 0


class _Line(Generic[PartitionT]):
    """The partitions that one node leads."""

    def __init__(self) -> None:
        self.followed: dict[PartitionT, _Followed] = {}
        #: In the order of the next request.
        self.ready: dict[PartitionT, None] = {}
        #: Not to be asked for before a certain time.
        self.late: dict[PartitionT, None] = {}


class FetchPlan(Generic[PartitionT]):
    def __init__(self, config: FetchPlanConfig) -> None:
        self._config = config
        self._lines: dict[NodeId, _Line[PartitionT]] = {}
        self._leaders: dict[PartitionT, NodeId] = {}

    def follow(self, partition: PartitionT, leader: PartitionLeader) -> None:
        """Fetch the partition from this leader at once, whatever became of the one before; an old epoch is no news."""
        known = self._followed(partition)
        if known is not None and known.leader.leader_epoch >= leader.leader_epoch:
            return
        self.unfollow(partition)
        self._leaders[partition] = leader.node_id
        line = self._lines.setdefault(leader.node_id, _Line())
        line.followed[partition] = _Followed(leader)
        line.ready[partition] = None

    def unfollow(self, partition: PartitionT) -> None:
        node = self._leaders.pop(partition, None)
        if node is None:
            return
        line = self._lines[node]
        del line.followed[partition]
        line.ready.pop(partition, None)
        line.late.pop(partition, None)
        if not line.followed:
            del self._lines[node]

    def leaders(self) -> list[NodeId]:
        """The nodes that there is something to fetch from."""
        return sorted(self._lines)

    def next_fetch(self, leader: NodeId, now_ms: int, most: int) -> list[PlannedFetch[PartitionT]]:
        """What the next request to this leader asks for, in order; each is to be reported back exactly once."""
        line = self._lines.get(leader)
        if line is None:
            return []
        for partition in [one for one in line.late if line.followed[one].ready_ms <= now_ms]:
            del line.late[partition]
            line.ready[partition] = None
        planned = []
        for partition in list(islice(line.ready, most)):
            del line.ready[partition]
            followed = line.followed[partition]
            followed.in_flight = True
            planned.append(PlannedFetch(partition=partition, leader=leader, leader_epoch=followed.leader.leader_epoch))
        return planned

    def is_ready(self, leader: NodeId) -> bool:
        """Whether there is something to ask for that does not have to wait."""
        line = self._lines.get(leader)
        return line is not None and bool(line.ready)

    def next_ready_ms(self, leader: NodeId) -> int | None:
        """When the first partition that has to wait may be asked for again; None if none has to."""
        line = self._lines.get(leader)
        return None if line is None else min((line.followed[one].ready_ms for one in line.late), default=None)

    def answered(self, fetch: PlannedFetch[PartitionT]) -> None:
        """The answer is dealt with: appended, synced or truncated. The partition may be asked for again."""
        followed = self._returned(fetch)
        if followed is None:
            return
        followed.failures = 0
        self._lines[fetch.leader].ready[fetch.partition] = None

    def failed(self, fetch: PlannedFetch[PartitionT], now_ms: int) -> None:
        """The leader refused the partition, or could not be reached, or the answer could not be dealt with."""
        followed = self._returned(fetch)
        if followed is None:
            return
        delay_ms = self._config.backoff_ms << min(followed.failures, 20)
        followed.failures += 1
        self._wait(fetch, followed, now_ms + min(delay_ms, self._config.backoff_max_ms))

    def defer(self, fetch: PlannedFetch[PartitionT], until_ms: int) -> None:
        """The partition was not asked for after all, and is not to be before then."""
        followed = self._returned(fetch)
        if followed is not None:
            self._wait(fetch, followed, until_ms)

    def _wait(self, fetch: PlannedFetch[PartitionT], followed: _Followed, until_ms: int) -> None:
        followed.ready_ms = until_ms
        self._lines[fetch.leader].late[fetch.partition] = None

    def _returned(self, fetch: PlannedFetch[PartitionT]) -> _Followed | None:
        """The partition, if it still follows the leader epoch that the fetch was for."""
        followed = self._followed(fetch.partition)
        if followed is None or not followed.in_flight or followed.leader.leader_epoch != fetch.leader_epoch:
            return None
        followed.in_flight = False
        return followed

    def _followed(self, partition: PartitionT) -> _Followed | None:
        node = self._leaders.get(partition)
        return None if node is None else self._lines[node].followed[partition]
