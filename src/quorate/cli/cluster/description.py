"""A running cluster as its nodes describe it: an image, as the planners of moves want it, and whether all is well."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from quorate.cli.terminal import counted
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset, TopicName
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic
from quorate.metadata.core.image_parts import without
from quorate.metadata.core.records import AnyRecord, BrokerRegistered, PartitionChanged, TopicCreated
from quorate.replication.core.leader import effective_min_isr

if TYPE_CHECKING:
    from quorate.client.admin.brokers import BrokerList, NodeCondition
    from quorate.client.admin.quorum import QuorumDescription
    from quorate.client.admin.topics import OngoingReassignment
    from quorate.client.cluster_metadata import TopicMetadata
    from quorate.client.kafka_client import KafkaClient
    from quorate.kernel.ids import TopicPartition

_MIN_ISR = "min.insync.replicas"
#: A cluster in which something begins or ends to move all the time is described as it is.
_LOOKS = 5


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    #: Where clients connect to; None for a member of the quorum that is not registered as a broker.
    address: str | None
    peer_address: str | None
    rack: str | None
    #: live, fenced (down, or just starting), or unregistered.
    state: str
    #: leader, voter, learner, none; None while the quorum has no leader that could tell.
    quorum_role: str | None
    #: Entries of the metadata log that the node does not have yet.
    metadata_lag: int | None
    leaders: int
    replicas: int
    #: What it reports of itself, a sentence each.
    problems: tuple[str, ...] = ()
    information: tuple[str, ...] = ()


class QuorumHealth(msgspec.Struct, frozen=True, kw_only=True):
    leader: int
    term: int
    high_watermark: int
    voters: tuple[int, ...]
    #: Of the voter that is furthest behind, in entries of the metadata log.
    max_voter_lag: int


class PartitionHealth(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class ClusterHealth(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    healthy: bool
    #: What is wrong, a sentence each.
    problems: tuple[str, ...]
    quorum: QuorumHealth | None
    nodes: tuple[NodeHealth, ...]
    topic_count: int
    partition_count: int
    leaderless: tuple[PartitionHealth, ...]
    under_replicated: tuple[PartitionHealth, ...]
    under_min_isr: tuple[PartitionHealth, ...]
    #: Moves under way: no problem by itself.
    reassigning: tuple[PartitionHealth, ...]


def examine(client: "KafkaClient") -> ClusterHealth:
    brokers = client.brokers.registered()
    topics = client.cluster.metadata().topics
    image = image_of(brokers, topics, client.reassignments.ongoing())
    min_isr = _min_isr(client, image)
    try:
        quorum = client.quorum.describe()
    except KafkaError as error:
        if error.code not in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT):
            raise
        quorum = None
    return judge(brokers, image, min_isr, quorum, client.brokers.conditions(brokers.brokers.values()))


def judge(
    brokers: "BrokerList",
    image: MetadataImage,
    min_isr: Mapping[TopicName, int],
    quorum: "QuorumDescription | None",
    conditions: "Sequence[NodeCondition]" = (),
) -> ClusterHealth:
    nodes = [_with_conditions(node, conditions) for node in _nodes(brokers, image, quorum)]
    states = [(topic, index, state) for topic in image.topics.values() for index, state in topic.partitions.items()]
    leaderless = [_partition(*each) for each in states if not each[2].has_leader]
    under_replicated = [_partition(*each) for each in states if _is_under_replicated(each[2])]
    under_min_isr = [_partition(*each) for each in states if _is_under_min_isr(each[2], min_isr.get(each[0].name, 1))]
    reassigning = [_partition(*each) for each in states if each[2].is_reassigning]
    problems = [] if quorum is not None else ["the quorum has no leader: no change can be agreed on"]
    problems += [f"node {node.node_id} is {node.state}" for node in nodes if node.state != "live"]
    problems += [f"node {node.node_id}: {problem}" for node in nodes for problem in node.problems]
    problems += [
        f"{counted(len(found), 'partition')} {what}"
        for found, what in (
            (leaderless, "without a leader"),
            (under_replicated, "with replicas out of sync"),
            (under_min_isr, "with fewer replicas in sync than min.insync.replicas"),
        )
        if found
    ]
    return ClusterHealth(
        cluster_id=brokers.cluster_id,
        healthy=not problems,
        problems=tuple(problems),
        quorum=None if quorum is None else _quorum(quorum),
        nodes=tuple(nodes),
        topic_count=len(image.topics),
        partition_count=len(states),
        leaderless=tuple(leaderless),
        under_replicated=tuple(under_replicated),
        under_min_isr=tuple(under_min_isr),
        reassigning=tuple(reassigning),
    )


def _min_isr(client: "KafkaClient", image: MetadataImage) -> dict[TopicName, int]:
    configs = client.configs.describe_topics(image.topics) if image.topics else {}
    return {name: int(entries[_MIN_ISR].value or 1) for name, entries in configs.items() if _MIN_ISR in entries}


def _is_under_replicated(state: PartitionState) -> bool:
    """A replica that a reassignment is still adding is not missed yet."""
    return not set(without(state.replicas, state.adding_replicas)) <= set(state.isr)


def _is_under_min_isr(state: PartitionState, min_insync_replicas: int) -> bool:
    return len(state.isr) < effective_min_isr(min_insync_replicas, len(state.replicas))


def _with_conditions(node: NodeHealth, conditions: "Sequence[NodeCondition]") -> NodeHealth:
    own = [condition for condition in conditions if condition.node_id == node.node_id]
    return msgspec.structs.replace(
        node,
        problems=tuple(each.sentence for each in own if each.is_problem),
        information=tuple(each.sentence for each in own if not each.is_problem),
    )


def _nodes(brokers: "BrokerList", image: MetadataImage, quorum: "QuorumDescription | None") -> list[NodeHealth]:
    members = {} if quorum is None else quorum.members
    return [_node(node_id, brokers, image, quorum) for node_id in sorted({*brokers.brokers, *members})]


def _node(
    node_id: NodeId, brokers: "BrokerList", image: MetadataImage, quorum: "QuorumDescription | None"
) -> NodeHealth:
    broker = brokers.brokers.get(node_id)
    is_member = quorum is not None and node_id in quorum.members
    peer_address = None if quorum is None else quorum.addresses.get(node_id)
    state = "unregistered" if broker is None else "fenced" if broker.is_fenced else "live"
    return NodeHealth(
        node_id=node_id,
        address=None if broker is None else str(broker.address),
        peer_address=None if peer_address is None else str(peer_address),
        rack=None if broker is None else broker.rack,
        state=state,
        quorum_role=None if quorum is None else _role(node_id, quorum),
        metadata_lag=quorum.lag(node_id) if quorum is not None and is_member else None,
        leaders=image.leader_count(node_id),
        replicas=image.replica_count(node_id),
    )


def _role(node_id: NodeId, quorum: "QuorumDescription") -> str:
    if node_id == quorum.leader:
        return "leader"
    member = quorum.members.get(node_id)
    return "none" if member is None else "voter" if member.is_voter else "learner"


def _quorum(quorum: "QuorumDescription") -> QuorumHealth:
    return QuorumHealth(
        leader=quorum.leader,
        term=quorum.term,
        high_watermark=quorum.high_watermark,
        voters=tuple(quorum.voters),
        max_voter_lag=max((quorum.lag(voter) for voter in quorum.voters), default=0),
    )


def _partition(topic: Topic, index: int, state: PartitionState) -> PartitionHealth:
    return PartitionHealth(
        topic=topic.name,
        partition=index,
        leader=state.leader if state.has_leader else None,
        replicas=state.replicas,
        isr=state.isr,
        adding=state.adding_replicas,
        removing=state.removing_replicas,
    )


def describe_image(client: "KafkaClient") -> MetadataImage:
    """What the cluster looks like now. Configs and epochs of brokers are not part of it."""
    ongoing = client.reassignments.ongoing()
    for _ in range(_LOOKS):
        topics = client.cluster.metadata().topics
        before, ongoing = ongoing, client.reassignments.ongoing()
        if before == ongoing:
            break  # What the topics tell of replicas is of the same moment.
    return image_of(client.brokers.registered(), topics, ongoing)


def image_of(
    brokers: "BrokerList",
    topics: "Mapping[TopicName, TopicMetadata]",
    ongoing: "Mapping[TopicPartition, OngoingReassignment]",
) -> MetadataImage:
    image, _ = MetadataImage().replay(_records(brokers, topics, ongoing), Offset(1))
    return image


def _records(
    brokers: "BrokerList",
    topics: "Mapping[TopicName, TopicMetadata]",
    ongoing: "Mapping[TopicPartition, OngoingReassignment]",
) -> Iterator[AnyRecord]:
    from quorate.kernel.ids import TopicPartition

    for number, broker in enumerate(brokers.brokers.values(), start=1):
        yield BrokerRegistered(
            node_id=broker.node_id,
            broker_epoch=BrokerEpoch(number),
            host=broker.address.host,
            port=broker.address.port,
            rack=broker.rack,
            fenced=broker.is_fenced,
        )
    for topic in topics.values():
        yield TopicCreated(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            moving = ongoing.get(TopicPartition(topic.name, partition.index))
            yield PartitionChanged(
                topic_id=topic.topic_id,
                partition=partition.index,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=NO_NODE if partition.leader is None else partition.leader,
                leader_epoch=partition.leader_epoch,
                adding_replicas=() if moving is None else moving.adding,
                removing_replicas=() if moving is None else moving.removing,
            )
