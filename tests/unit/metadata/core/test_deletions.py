"""What an image remembers of topics and replicas that are gone: enough to delete their logs, and nothing else."""

from uuid import UUID

from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName
from quorate.metadata.core.commands import AlterPartitionReassignments, DeleteTopic, PartitionReassignment
from quorate.metadata.core.image import PartitionState, Topic
from quorate.metadata.core.image_parts import Deletions
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.unit.metadata.core.cluster import ORDERS, Cluster

FIRST = PartitionIndex(0)


def topic(number: int, *leader_epochs: int, name: str | None = None) -> Topic:
    states = {
        PartitionIndex(index): PartitionState(
            replicas=(NodeId(1),), isr=(NodeId(1),), leader=NodeId(1), leader_epoch=LeaderEpoch(epoch)
        )
        for index, epoch in enumerate(leader_epochs)
    }
    return Topic(
        name=TopicName(name or f"topic-{number}"), topic_id=TopicId(UUID(int=number)), partitions=states, configs={}
    )


def move(cluster: Cluster, *replicas: int) -> None:
    change = PartitionReassignment(topic=ORDERS, partition=FIRST, replicas=tuple(map(NodeId, replicas)))
    cluster.do(AlterPartitionReassignments(reassignments=(change,)))
    for _ in range(2):
        if cluster.state().is_reassigning:
            cluster.alter_isr(cluster.isr_change(cluster.state().replicas))
    assert not cluster.state().is_reassigning


def test_a_topic_was_removed_once_a_record_says_so() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    topic_id = cluster.image.topics[ORDERS].topic_id
    assert not cluster.image.was_removed(topic_id, FIRST, NodeId(7))

    cluster.do(DeleteTopic(topic_id=topic_id))

    for image in (cluster.image, decode_image(encode_image(cluster.image))):
        assert image.was_removed(topic_id, FIRST, NodeId(7))


def test_what_the_image_never_knew_was_not_removed() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    topic_id = cluster.image.topics[ORDERS].topic_id

    assert not cluster.image.was_removed(TopicId(UUID(int=12345)), FIRST, NodeId(7))
    assert not cluster.image.was_removed(topic_id, FIRST, NodeId(4001)), "it never had a replica"
    assert not cluster.image.was_removed(topic_id, PartitionIndex(3), NodeId(7)), "there is no such partition"


def test_a_replica_was_removed_until_it_comes_back() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    topic_id = cluster.image.topics[ORDERS].topic_id

    move(cluster, 100, 4001)
    for image in (cluster.image, decode_image(encode_image(cluster.image))):
        assert image.was_removed(topic_id, FIRST, NodeId(7))
        assert not image.was_removed(topic_id, FIRST, NodeId(4001))
    assert decode_image(encode_image(cluster.image)) == cluster.image

    move(cluster, 7, 100)
    assert not cluster.image.was_removed(topic_id, FIRST, NodeId(7))
    assert cluster.image.was_removed(topic_id, FIRST, NodeId(4001))


def test_the_oldest_deletions_are_forgotten_first() -> None:
    deletions = Deletions()
    for number in range(1, 6):
        deletions = deletions.after([topic(number, number)], room=3)
    assert [topic_id.int for topic_id in deletions.topic_ids] == [3, 4, 5]
    assert list(deletions.leader_epochs) == ["topic-3", "topic-4", "topic-5"]


def test_none_is_forgotten_in_the_moment_of_its_deletion() -> None:
    deletions = Deletions().after([topic(number, 0) for number in range(5)], room=3)
    assert len(deletions.topic_ids) == len(deletions.leader_epochs) == 5
    assert len(deletions.after([topic(9, 0)], room=3).topic_ids) == 3


def test_the_highest_epoch_of_a_name_is_remembered_over_all_its_topics() -> None:
    name = TopicName("orders")
    deletions = Deletions().after([topic(1, 2, 9, 4, name=name)])
    assert deletions.first_leader_epoch(name) == 10
    assert deletions.after([topic(2, 3, name=name)]).first_leader_epoch(name) == 10
    assert deletions.first_leader_epoch(TopicName("others")) == 0


def test_the_epochs_of_forgotten_names_are_a_floor_for_all() -> None:
    deletions = Deletions().after([topic(1, 6), topic(2, 1)], room=2)
    for number in (3, 4):
        deletions = deletions.after([topic(number, 0)], room=2)
    assert deletions.first_leader_epoch(TopicName("topic-1")) == 7
    assert deletions.first_leader_epoch(TopicName("never-seen")) == 7
