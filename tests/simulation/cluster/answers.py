"""Answers against images: each must agree with an image that its node had between the request and the answer."""

from collections.abc import Iterable, Sequence

from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_NODE, GroupId, NodeId, QuorumLeader, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.metadata.core.image import MetadataImage, PartitionState
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from quorate.protocol.messages.find_coordinator import Coordinator
from quorate.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.simulation.cluster.findings import Findings


class NodeView:
    """What one life of a node showed, and when."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self._images: list[tuple[float, MetadataImage]] = []
        self._leaders: list[tuple[float, NodeId]] = []

    @property
    def image(self) -> MetadataImage:
        return self._images[-1][1] if self._images else MetadataImage()

    def image_changed(self, now: float, image: MetadataImage) -> None:
        self._images.append((now, image))

    def leader_changed(self, now: float, leader: QuorumLeader | None) -> None:
        self._leaders.append((now, NO_NODE if leader is None else leader.node_id))

    def images_since(self, time: float) -> list[MetadataImage]:
        """The image at that time, and all that came after it."""
        since = next((i for i, (at, _) in enumerate(self._images) if at > time), len(self._images))
        return [image for _, image in self._images[max(0, since - 1) :]]

    def leaders_since(self, time: float) -> set[NodeId]:
        since = next((i for i, (at, _) in enumerate(self._leaders) if at > time), len(self._leaders))
        return {leader for _, leader in self._leaders[max(0, since - 1) :]}


class Answers:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def check_metadata(self, view: NodeView, asked_at: float, answer: MetadataResponse, *, all_topics: bool) -> None:
        if answer.controller_id not in view.leaders_since(asked_at):
            self._report(view, f"controller {answer.controller_id}, known were {view.leaders_since(asked_at)}")
        images = view.images_since(asked_at)
        if not any(_metadata_agrees(answer, image, all_topics=all_topics) for image in images):
            self._report(view, f"Metadata agrees with none of the versions {_versions(images)}: {answer}")

    def check_description(self, view: NodeView, asked_at: float, answer: DescribeTopicPartitionsResponse) -> None:
        images = view.images_since(asked_at)
        if not any(_topics_agree(answer.topics, image) for image in images):
            self._report(view, f"DescribeTopicPartitions agrees with none of {_versions(images)}: {answer}")

    def check_coordinator(self, view: NodeView, asked_at: float, answer: Coordinator) -> None:
        images = view.images_since(asked_at)
        if not any(_coordinator_agrees(answer, image) for image in images):
            self._report(view, f"FindCoordinator agrees with none of {_versions(images)}: {answer}")

    def _report(self, view: NodeView, text: str) -> None:
        self._findings.report("answers", f"node {view.node_id}: {text}")


def _versions(images: Sequence[MetadataImage]) -> list[int]:
    return [image.version for image in images]


def _metadata_agrees(answer: MetadataResponse, image: MetadataImage, *, all_topics: bool) -> bool:
    told = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    registered = {id_: (broker.host, broker.port) for id_, broker in image.brokers.items()}
    live = {id_ for id_, broker in image.brokers.items() if not broker.fenced}
    if not live <= set(told) or not told.items() <= registered.items():  # Fenced ones are told for a while.
        return False
    if all_topics and {topic.name for topic in answer.topics} != set(image.topics):
        return False
    return answer.cluster_id == image.cluster_id and _topics_agree(answer.topics, image)


def _topics_agree(
    topics: Iterable[MetadataResponseTopic] | Iterable[DescribeTopicPartitionsResponseTopic], image: MetadataImage
) -> bool:
    return all(_topic_agrees(topic, image) for topic in topics)


def _topic_agrees(answer: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic, image: MetadataImage) -> bool:
    topic = image.topics.get(TopicName(answer.name or ""))
    if answer.error_code != ErrorCode.NONE or topic is None:
        return answer.error_code != ErrorCode.NONE and topic is None
    told = {
        p.partition_index: (
            p.error_code,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in answer.partitions
    }
    true = {index: _partition(image, state) for index, state in topic.partitions.items()}
    return answer.topic_id == topic.topic_id and told == true


def _partition(image: MetadataImage, state: PartitionState) -> tuple[object, ...]:
    error = ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_NODE else ErrorCode.NONE
    offline = tuple(id_ for id_ in state.replicas if id_ not in image.brokers or image.brokers[id_].fenced)
    return (error, state.leader, state.leader_epoch, state.replicas, state.isr, offline)


def _coordinator_agrees(answer: Coordinator, image: MetadataImage) -> bool:
    topic = image.topics.get(CONSUMER_OFFSETS)
    leader = NO_NODE
    if topic is not None:
        leader = topic.partitions[partition_for(GroupId(answer.key), len(topic.partitions))].leader
    if answer.error_code != ErrorCode.NONE:
        return leader == NO_NODE
    broker = image.brokers.get(leader)
    return broker is not None and (answer.node_id, answer.host, answer.port) == (leader, broker.host, broker.port)
