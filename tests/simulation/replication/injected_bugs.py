"""Bugs of replication that are hard to meet, one patch each: the simulated clusters have to find them.

Nothing of production code is changed on disk; a bug is there while its context manager is open.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from quorate.kernel.ids import NodeId
from quorate.replication.core.leader import IsrChanges
from quorate.replication.following import Following
from quorate.replication.partition import Partition
from quorate.replication.replica_fetcher import ReplicaFetcher


@contextmanager
def watermark_does_not_wait_for_proposed_members() -> Iterator[None]:
    """Who was proposed, and may have been accepted without the leader knowing, is not waited for."""

    def committed_only(self: IsrChanges) -> frozenset[NodeId]:
        return self.membership.isr

    with patch.object(IsrChanges, "maximal", property(committed_only)):
        yield


@contextmanager
def unsynced_records_promised_to_a_new_leader() -> Iterator[None]:
    """A follower that gets a new leader asks from its log's end, although the end is not on its disk."""
    follow = ReplicaFetcher.follow
    may_ask = Following.may_ask
    fresh: set[Partition] = set()

    def follow_at_once(self: ReplicaFetcher, partition: Partition) -> None:
        fresh.add(partition)
        follow(self, partition)

    def may_ask_once(self: Following) -> bool:
        if self.partition in fresh:
            fresh.discard(self.partition)
            return True
        return bool(may_ask.fget(self))  # type: ignore[attr-defined]

    with (
        patch.object(ReplicaFetcher, "follow", follow_at_once),
        patch.object(Following, "may_ask", property(may_ask_once)),
    ):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__: bug
    for bug in (watermark_does_not_wait_for_proposed_members, unsynced_records_promised_to_a_new_leader)
}
