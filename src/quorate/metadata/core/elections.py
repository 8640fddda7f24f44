"""Electing partition leaders, when brokers come and go and on demand.

A new leader comes from the in-sync set, in the order of the replicas. The last member of an in-sync set is never taken
out of it: the partition waits for that member without a leader, unless its topic allows an unclean election.
"""

from collections.abc import Callable, Iterator

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NO_TOPIC_ID, NodeId, QuorumLeader
from quorate.metadata.core.commands import ElectionKind, ElectLeaders, PartitionName
from quorate.metadata.core.decisions import (
    Decision,
    PartitionEdits,
    PartitionOutcome,
    PartitionOutcomes,
    failed,
    succeeded,
)
from quorate.metadata.core.effective_configs import BrokerView, topic_entries
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic, TopicIdPartition
from quorate.metadata.core.image_parts import without
from quorate.metadata.core.records import PartitionChanged
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS

_UNCLEAN = TOPIC_CONFIGS["unclean.leader.election.enable"]


class ElectionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's settings for elections."""

    view: BrokerView
    #: Leads wherever it is a candidate, in place of the first replica; None leaves leaders spread.
    favoured: QuorumLeader | None = None

    def allows_unclean(self, image: MetadataImage, topic: Topic) -> bool:
        return bool(_UNCLEAN.parse(next(topic_entries(image, self.view, topic.configs, _UNCLEAN)).value))


class Elections:
    """The elections of one decision. Brokers that it loses or gains count as such before any record is replayed."""

    def __init__(self, image: MetadataImage, rules: ElectionRules) -> None:
        self._image = image
        self._rules = rules
        self._edits = PartitionEdits(image)
        self._lost: set[NodeId] = set()
        #: Whether brokers have room whose state this decision changes.
        self._room: dict[NodeId, bool] = {}
        self._gained: set[NodeId] = set()

    @property
    def edits(self) -> PartitionEdits:
        return self._edits

    def lose(self, node: NodeId, *, is_back: bool = False) -> None:
        """Take the broker out of every in-sync set that has another member, and elect where it led.

        For one that has started again, partitions without another in-sync replica wait: no unclean election is due.
        """
        self._lost.add(node)
        for name, state in self._image.hosted_partitions(node):
            if node not in state.isr:
                continue
            isr = without(state.isr, (node,)) or state.isr
            leader = self.candidate(state, isr) if state.leader == node else state.leader
            changed = self._edits.change(name, msgspec.structs.replace(state, isr=isr, leader=leader))
            if not changed.has_leader and not is_back:
                self._elect_unclean_if_allowed(name)

    def gain(self, node: NodeId) -> None:
        """The broker may lead: elect where a partition waits for it."""
        self._gained.add(node)
        for name, _ in self._image.hosted_partitions(node):
            self.elect_if_leaderless(name)

    def vacate(self, node: NodeId) -> None:
        """Move leaderships off a broker that still runs. It keeps those that no other replica can take."""
        self._lost.add(node)
        for name, state in self._image.hosted_partitions(node):
            isr = without(state.isr, (node,))
            if node not in state.isr or not isr:
                continue
            leader = self.candidate(state, isr) if state.leader == node else state.leader
            if leader != NO_NODE:
                self._edits.change(name, msgspec.structs.replace(state, isr=isr, leader=leader))

    def relieve(self, node: NodeId) -> None:
        """The broker's disk is full: have replicas that can take records lead, and wait for it nowhere.

        It stays where no other in-sync replica can take records either: leaving would gain nothing there, and what it
        holds counts.
        """
        self._room[node] = False
        for name, state in self._image.hosted_partitions(node):
            isr = without(state.isr, (node,))
            if node not in state.isr or not any(self.takes_records(other) for other in isr):
                continue
            leader = self.candidate(state, isr) if state.leader == node else state.leader
            self._edits.change(name, msgspec.structs.replace(state, isr=isr, leader=leader))

    def take_over_from_full(self, node: NodeId) -> None:
        """The broker has room again: have it lead where the leader has none, and wait for full disks nowhere."""
        self._room[node] = True
        for name, state in self._image.hosted_partitions(node):
            if node in state.isr and state.has_leader and not self.takes_records(state.leader):
                isr = tuple(other for other in state.isr if self.takes_records(other))
                leader = self.candidate(state, isr)
                if leader != NO_NODE:
                    self._edits.change(name, msgspec.structs.replace(state, isr=isr, leader=leader))

    def resign(self, name: TopicIdPartition) -> None:
        """Have another replica in sync lead; where no other takes records, the leader stays."""
        state = self._edits.current(name)
        others = without(state.isr, (state.leader,))
        successor = self.candidate(state, tuple(node for node in others if self.takes_records(node)))
        if successor != NO_NODE:
            self._edits.change(name, msgspec.structs.replace(state, leader=successor))

    def elect_if_leaderless(self, name: TopicIdPartition) -> None:
        state = self._edits.current(name)
        if state.has_leader:
            return
        leader = self.candidate(state, state.isr)
        if leader != NO_NODE:
            self._edits.change(name, msgspec.structs.replace(state, leader=leader))
        else:
            self._elect_unclean_if_allowed(name)

    def elect_unclean(self, name: TopicIdPartition) -> bool:
        """Give a leaderless partition any replica that can lead; returns whether there was one."""
        state = self._edits.current(name)
        for node in sorted(state.replicas, key=lambda node: not self.takes_records(node)):
            if self._may_lead(node):
                unclean = node not in state.isr
                isr = (node,) if unclean else state.isr
                self._edits.change(name, msgspec.structs.replace(state, isr=isr, leader=node), unclean=unclean)
                return True
        return False

    def candidate(self, state: PartitionState, isr: tuple[NodeId, ...]) -> NodeId:
        """The replica that leads next, or NO_NODE."""
        return first_candidate(state.replicas, isr, self._may_lead, self.takes_records, self._rules.favoured)

    def _elect_unclean_if_allowed(self, name: TopicIdPartition) -> None:
        in_sync_is_live = any(self._is_live(node) for node in self._edits.current(name).isr)
        if not in_sync_is_live and self._rules.allows_unclean(self._image, self._image.topics[name.topic]):
            self.elect_unclean(name)

    def _may_lead(self, node: NodeId) -> bool:
        return node in self._gained or (node not in self._lost and self._image.is_active(node))

    def takes_records(self, node: NodeId) -> bool:
        return self._may_lead(node) and self._room.get(node, self._image.has_room(node))

    def _is_live(self, node: NodeId) -> bool:
        return node in self._gained or (node not in self._lost and self._image.is_live(node))


def first_candidate(
    replicas: tuple[NodeId, ...],
    isr: tuple[NodeId, ...],
    may_lead: Callable[[NodeId], bool],
    takes_records: Callable[[NodeId], bool],
    favoured: QuorumLeader | None = None,
) -> NodeId:
    """The first replica that is in sync and may lead, the favoured one before all others, or NO_NODE.

    One whose disk is full leads only where all are: it can still be read from.
    """
    able = [node for node in replicas if node in isr and may_lead(node)]
    candidates = [node for node in able if takes_records(node)] or able
    if favoured is not None and favoured.node_id in candidates:
        return favoured.node_id
    return candidates[0] if candidates else NO_NODE


def preferred_leader(state: PartitionState, favoured: QuorumLeader | None = None) -> NodeId:
    """The replica that is to lead when all are in sync."""
    if favoured is not None and favoured.node_id in state.replicas:
        return favoured.node_id
    return state.replicas[0]


def preferred_leader_imbalance(image: MetadataImage, favoured: QuorumLeader | None = None) -> tuple[PartitionName, ...]:
    """The partitions whose preferred leader could lead but does not, for an automatic election."""
    return tuple(
        PartitionName(topic.name, index)
        for topic in image.topics.values()
        for index, state in topic.partitions.items()
        if state.leader != (preferred := preferred_leader(state, favoured))
        and preferred in state.isr
        and image.takes_records(preferred)
    )


def elect_leaderless(image: MetadataImage, rules: ElectionRules, topic: Topic) -> tuple[PartitionChanged, ...]:
    """Leaders for those of the topic's partitions that have none, as far as the image allows."""
    elections = Elections(image, rules)
    for index in topic.partitions:
        elections.elect_if_leaderless(TopicIdPartition(topic.topic_id, topic.name, index))
    return elections.edits.records()


def decide_elections(image: MetadataImage, rules: ElectionRules, command: ElectLeaders) -> Decision[PartitionOutcomes]:
    elections = Elections(image, rules)
    outcomes = []
    for wanted in _all_partitions(image) if command.partitions is None else command.partitions:
        outcome = _elect(image, rules, elections, command.kind, wanted)
        if command.partitions is not None or outcome.error is not ErrorCode.ELECTION_NOT_NEEDED:
            outcomes.append(outcome)
    return Decision(records=elections.edits.records(), answer=PartitionOutcomes(tuple(outcomes)))


def _elect(
    image: MetadataImage, rules: ElectionRules, elections: Elections, kind: ElectionKind, wanted: PartitionName
) -> PartitionOutcome:
    if image.partition(wanted.topic, wanted.partition) is None:
        unknown = TopicIdPartition(NO_TOPIC_ID, wanted.topic, wanted.partition)
        return failed(unknown, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."))
    name = TopicIdPartition(image.topics[wanted.topic].topic_id, wanted.topic, wanted.partition)
    state = elections.edits.current(name)
    try:
        if kind is ElectionKind.PREFERRED:
            _elect_preferred(elections, name, preferred_leader(state, rules.favoured))
        else:
            _elect_any(elections, name)
    except KafkaError as error:
        return failed(name, error, state)
    return succeeded(name, elections.edits.current(name))


def _elect_preferred(elections: Elections, name: TopicIdPartition, preferred: NodeId) -> None:
    state = elections.edits.current(name)
    if state.leader == preferred:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred leader leads already.")
    if elections.candidate(state, (preferred,) if preferred in state.isr else ()) != preferred:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"The preferred leader {preferred} is not in sync.")
    if state.has_leader and not elections.takes_records(preferred):
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"The disk of the preferred leader {preferred} is full."
        )
    elections.edits.change(name, msgspec.structs.replace(state, leader=preferred))


def _elect_any(elections: Elections, name: TopicIdPartition) -> None:
    if elections.edits.current(name).has_leader:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a leader.")
    elections.elect_if_leaderless(name)
    if not elections.edits.current(name).has_leader and not elections.elect_unclean(name):
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition can lead.")


def _all_partitions(image: MetadataImage) -> Iterator[PartitionName]:
    for topic in image.topics.values():
        for index in topic.partitions:
            yield PartitionName(topic.name, index)
