"""Bugs that clusters of this kind have had, one patch each: the simulator has to find every one of them.

Nothing of production code is changed on disk; a bug is there while its context manager is open.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from quorate.broker.handlers import metadata as metadata_handler
from quorate.kernel.address import Address
from quorate.kernel.ids import NO_NODE, NodeId, Offset, PartitionIndex, PartitionLeader, QuorumLeader
from quorate.metadata.core import topics
from quorate.metadata.core.commands import Command
from quorate.metadata.core.image import PartitionState
from quorate.metadata.core.records import PartitionChanged
from quorate.protocol.messages.metadata import MetadataResponsePartition
from quorate.quorum.core.entries import Entry, HardState
from quorate.quorum.core.ready import Ready
from quorate.quorum.log_scan import encode_entry
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.quorum import Quorum
from quorate.quorum.raft_storage import RaftStorage
from quorate.replication import partitions
from quorate.replication.core.leader import LeaderReplica
from quorate.replication.following import follow
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.transport.peers.frames import FrameKind
from quorate.transport.peers.hello import Hello, Rejection
from quorate.transport.peers.introduction import Frame, ListenerIntroduction

_CACHED_FOR_S = 60.0


@contextmanager
def node_ids_hard_coded() -> Iterator[None]:
    """Nodes know each other as 1, 2 and 3."""
    addresses = Quorum._addresses

    def few(self: Quorum) -> dict[NodeId, Address]:
        return {node_id: address for node_id, address in addresses(self).items() if node_id in (1, 2, 3)}

    with patch.object(Quorum, "_addresses", few):
        yield


@contextmanager
def clients_sent_to_the_assigned_node() -> Iterator[None]:
    """Metadata names the first replica, whoever was elected."""
    partition = metadata_handler._partition

    def assigned(seen: Any, index: PartitionIndex, state: PartitionState) -> MetadataResponsePartition:
        return msgspec.structs.replace(partition(seen, index, state), leader_id=state.replicas[0])

    with patch.object(metadata_handler, "_partition", assigned):
        yield


@contextmanager
def isr_answered_as_all_replicas() -> Iterator[None]:
    partition = metadata_handler._partition

    def all_in_sync(seen: Any, index: PartitionIndex, state: PartitionState) -> MetadataResponsePartition:
        return msgspec.structs.replace(partition(seen, index, state), isr_nodes=state.replicas)

    with patch.object(metadata_handler, "_partition", all_in_sync):
        yield


@contextmanager
def only_the_first_of_a_batch_gets_a_leader() -> Iterator[None]:
    new_partitions = topics._new_partitions

    def first_led(*args: Any, **favoured: Any) -> tuple[PartitionChanged, ...]:
        first, *others = new_partitions(*args, **favoured)
        return (first, *(msgspec.structs.replace(other, leader=NO_NODE) for other in others))

    with patch.object(topics, "_new_partitions", first_led):
        yield


@contextmanager
def leader_cached_for_a_minute() -> Iterator[None]:
    """A node names the leader of the past, however dead it is."""

    def cached(self: Quorum) -> QuorumLeader | None:
        now = self._environment.loop.time()
        leader, since = getattr(self, "cached_leader", (None, now))
        if leader is None or now - since > _CACHED_FOR_S:
            leader, since = self.driver.state.leader, now
        self.cached_leader = (leader, since)  # type: ignore[attr-defined]
        return leader

    with patch.object(Quorum, "leader", property(cached)):
        yield


@contextmanager
def watermark_advanced_before_replication() -> Iterator[None]:
    def advanced(self: LeaderReplica, high_watermark: Offset) -> Offset:
        return max(high_watermark, self._durable_offset)

    with patch.object(LeaderReplica, "advanced", advanced):
        yield


@contextmanager
def deposed_leaders_take_writes() -> Iterator[None]:
    """Who leads a partition goes on leading it, whatever the image says."""

    def stay(partition: Partition, leader: PartitionLeader, *, is_unclean: bool) -> None:
        if not isinstance(partition.role, Leading):
            follow(partition, leader, is_unclean=is_unclean)

    with patch.object(partitions, "follow", stay):
        yield


@contextmanager
def entries_acknowledged_before_they_are_synced() -> Iterator[None]:
    def append(self: RaftStorage, entries: Sequence[Entry]) -> None:
        if entries[0].offset < self._log.log_end_offset:
            self._log.truncate_to(entries[0].offset)
        now_ms = self._clock.now_ms()
        self._log.append_as_follower(
            b"".join(encode_entry(entry, self._log.log_end_offset, now_ms) for entry in entries)
        )

    with patch.object(RaftStorage, "_append", append):
        yield


@contextmanager
def votes_not_written_down() -> Iterator[None]:
    persist = RaftStorage.persist

    def forgetful(self: RaftStorage, ready: Ready) -> None:
        hard_state = None if ready.hard_state is None else HardState(ready.hard_state.term)
        persist(self, msgspec.structs.replace(ready, hard_state=hard_state))

    with patch.object(RaftStorage, "persist", forgetful):
        yield


@contextmanager
def changes_carried_out_twice() -> Iterator[None]:
    """A command that is asked again, since its answer was lost, is not known as the same."""

    def unchanged(self: QuorumMetadataStore, command: Command) -> Command:
        return command

    with patch.object(QuorumMetadataStore, "_repeatable", unchanged):
        yield


@contextmanager
def strangers_believed() -> Iterator[None]:
    """Who says hello without a proof is let in."""
    receive = ListenerIntroduction.receive

    def trusting(self: ListenerIntroduction, kind: FrameKind, body: memoryview) -> Frame | Hello | Rejection:
        if kind is FrameKind.HELLO:
            self._handshake = None
        return receive(self, kind, body)

    with patch.object(ListenerIntroduction, "receive", trusting):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    bug.__name__: bug
    for bug in (
        node_ids_hard_coded,
        clients_sent_to_the_assigned_node,
        isr_answered_as_all_replicas,
        only_the_first_of_a_batch_gets_a_leader,
        leader_cached_for_a_minute,
        watermark_advanced_before_replication,
        deposed_leaders_take_writes,
        entries_acknowledged_before_they_are_synced,
        votes_not_written_down,
        changes_carried_out_twice,
        strangers_believed,
    )
}
