"""Creating, growing and deleting topics: what the controller decides and what the image then shows."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, PartitionLeader, TopicId, TopicName
from quorate.metadata.core.commands import CreatePartitions, CreateTopic, DeleteTopic
from quorate.metadata.core.image import MetadataImage, TopicIdPartition
from tests.unit.metadata.core.cluster import Cluster

ORDERS = TopicName("orders")


def refused(cluster: Cluster, command: CreateTopic | CreatePartitions | DeleteTopic) -> ErrorCode:
    before = cluster.image
    with pytest.raises(KafkaError) as caught:
        cluster.do(command)
    assert cluster.image is before
    return caught.value.code


def test_a_created_topic_has_an_id_and_a_leader_for_every_partition() -> None:
    cluster = Cluster()

    decision = cluster.do(CreateTopic(name="orders", partition_count=6, replication_factor=2))

    topic = cluster.image.topics[ORDERS]
    assert decision.answer.topic == topic
    assert cluster.image.topic_by_id(topic.topic_id) is topic
    assert sorted(topic.partitions) == list(range(6))
    for index, state in topic.partitions.items():
        assert state.leader in state.replicas
        assert len(set(state.replicas)) == 2
        assert cluster.image.partition_leader(ORDERS, index) == PartitionLeader(state.leader, state.leader_epoch)
    assert cluster.delta.changed_partitions == tuple(
        TopicIdPartition(topic.topic_id, ORDERS, PartitionIndex(index)) for index in range(6)
    )


def test_leaders_are_spread_evenly_whatever_the_node_ids_are() -> None:
    cluster = Cluster(nodes=(7, 100, 4001))
    for number in range(5):
        cluster.do(CreateTopic(name=f"topic-{number}", partition_count=3, replication_factor=3))
    leaders = [s.leader for t in cluster.image.topics.values() for s in t.partitions.values()]
    assert {node: leaders.count(NodeId(node)) for node in (7, 100, 4001)} == {7: 5, 100: 5, 4001: 5}


def test_topics_of_one_partition_do_not_all_land_on_one_node() -> None:
    cluster = Cluster()
    for number in range(6):
        cluster.do(CreateTopic(name=f"topic-{number}", partition_count=1, replication_factor=1))
    leaders = {t.partitions[PartitionIndex(0)].leader for t in cluster.image.topics.values()}
    assert leaders == {7, 100, 4001}


def test_a_missing_partition_has_no_made_up_leader() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="orders", partition_count=1, replication_factor=1))
    assert cluster.image.partition_leader(ORDERS, PartitionIndex(1)) is None
    assert cluster.image.partition_leader(TopicName("other"), PartitionIndex(0)) is None
    assert cluster.image.partition_replicas(TopicName("other"), PartitionIndex(0)) == ()


def test_counts_that_are_left_open_take_the_cluster_defaults() -> None:
    cluster = Cluster(num_partitions="5", default_replication_factor="2")
    topic = cluster.do(CreateTopic(name="orders")).answer.topic
    assert len(topic.partitions) == 5
    assert len(topic.partitions[PartitionIndex(0)].replicas) == 2


def test_an_internal_topic_makes_do_with_the_brokers_there_are() -> None:
    cluster = Cluster(nodes=(7,))
    topic = cluster.do(
        CreateTopic(
            name="__consumer_offsets", partition_count=4, replication_factor=3, replication_factor_is_upper_bound=True
        )
    ).answer.topic
    assert topic.partitions[PartitionIndex(3)].replicas == (7,)


def test_replicas_can_be_named_by_hand() -> None:
    cluster = Cluster()
    assignments = {PartitionIndex(0): (NodeId(100), NodeId(7)), PartitionIndex(1): (NodeId(4001), NodeId(100))}
    topic = cluster.do(CreateTopic(name="orders", assignments=assignments)).answer.topic
    assert {index: state.replicas for index, state in topic.partitions.items()} == assignments
    assert topic.partitions[PartitionIndex(0)].leader == 100


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (CreateTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="a/../b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="orders\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreateTopic(name="existing"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreateTopic(name="with.dots"), ErrorCode.INVALID_TOPIC_EXCEPTION),  # Clashes with with_dots in metrics.
        (CreateTopic(name="new", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="new", partition_count=-2), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="new", partition_count=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (CreateTopic(name="new", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreateTopic(name="new", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreateTopic(name="new", configs={"retention": "1"}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (CreateTopic(name="new", configs={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG),
        (
            CreateTopic(name="new", assignments={PartitionIndex(1): (NodeId(7),)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreateTopic(name="new", assignments={PartitionIndex(0): (NodeId(8),)}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreateTopic(name="new", assignments={PartitionIndex(0): (NodeId(7), NodeId(7))}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreateTopic(name="new", partition_count=2, assignments={PartitionIndex(0): (NodeId(7),)}),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_with_kafkas_code(command: CreateTopic, code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="existing", partition_count=1, replication_factor=1))
    cluster.do(CreateTopic(name="with_dots", partition_count=1, replication_factor=1))
    assert refused(cluster, command) == code


def test_an_unknown_config_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(KafkaError, match=r"did you mean retention\.ms\?"):
        Cluster().do(CreateTopic(name="new", configs={"retention_ms": "1"}))


def test_added_partitions_continue_the_numbering_and_leave_the_others_alone() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="orders", partition_count=2, replication_factor=2))
    before = dict(cluster.image.topics[ORDERS].partitions)

    cluster.do(CreatePartitions(name=ORDERS, total_count=5))

    after = cluster.image.topics[ORDERS].partitions
    assert sorted(after) == [0, 1, 2, 3, 4]
    assert {index: after[index] for index in before} == before
    assert all(len(after[PartitionIndex(index)].replicas) == 2 for index in range(5))
    assert [changed.partition for changed in cluster.delta.changed_partitions] == [2, 3, 4]


@pytest.mark.parametrize(
    ("name", "count", "code"),
    [
        ("orders", 1, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2, ErrorCode.INVALID_PARTITIONS),
        ("orders", 100_000, ErrorCode.INVALID_PARTITIONS),
        ("other", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_are_only_ever_added_to_a_topic_that_exists(name: str, count: int, code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="orders", partition_count=2, replication_factor=1))
    assert refused(cluster, CreatePartitions(name=TopicName(name), total_count=count)) == code


def test_a_topic_made_again_is_another_topic() -> None:
    cluster = Cluster()
    first = cluster.do(CreateTopic(name="orders", partition_count=1, configs={"retention.ms": "1"})).answer.topic
    cluster.do(DeleteTopic(topic_id=first.topic_id))
    assert cluster.delta.deleted_topics == (first,)
    assert cluster.image.topic_by_id(first.topic_id) is None
    assert ORDERS not in cluster.image.topics

    second = cluster.do(CreateTopic(name="orders", partition_count=1)).answer.topic

    assert second.topic_id != first.topic_id
    assert second.configs == {}
    assert refused(cluster, DeleteTopic(topic_id=first.topic_id)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert ORDERS in cluster.image.topics


def test_a_retried_creation_with_its_topic_id_succeeds_and_changes_nothing() -> None:
    cluster = Cluster()
    topic_id = TopicId(cluster.new_uuid())
    first = cluster.do(CreateTopic(name="orders", partition_count=2, topic_id=topic_id))
    again = cluster.do(CreateTopic(name="orders", partition_count=2, topic_id=topic_id))
    assert first.answer.topic.topic_id == topic_id
    assert (again.answer.topic, again.records) == (first.answer.topic, ())

    stranger = CreateTopic(name="orders", topic_id=TopicId(cluster.new_uuid()))
    assert refused(cluster, stranger) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused(cluster, CreateTopic(name="other", topic_id=topic_id)) == ErrorCode.INVALID_REQUEST


def test_a_retried_creation_does_not_bring_back_a_topic_that_was_deleted_since() -> None:
    cluster = Cluster()
    creation = CreateTopic(name="orders", partition_count=2, topic_id=TopicId(cluster.new_uuid()))
    topic = cluster.do(creation).answer.topic
    cluster.do(DeleteTopic(topic_id=topic.topic_id))

    again = cluster.do(creation)
    assert (again.answer.topic.topic_id, len(again.answer.topic.partitions), again.records) == (topic.topic_id, 2, ())
    assert ORDERS not in cluster.image.topics
    assert all(cluster.image.was_removed(topic.topic_id, index, NodeId(7)) for index in topic.partitions)

    namesake = cluster.do(CreateTopic(name="orders", partition_count=1)).answer.topic
    assert cluster.do(creation).records == ()
    assert cluster.image.topics[ORDERS] == namesake


def test_a_name_that_collided_is_free_once_the_other_topic_is_gone() -> None:
    cluster = Cluster()
    first = cluster.do(CreateTopic(name="with_dots", partition_count=1)).answer.topic
    assert refused(cluster, CreateTopic(name="with.dots")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.do(DeleteTopic(topic_id=first.topic_id))
    cluster.do(CreateTopic(name="with.dots", partition_count=1))
    assert refused(cluster, CreateTopic(name="with_dots")) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_image_never_changes_under_its_reader() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="orders", partition_count=1))
    seen = cluster.image
    partitions = dict(seen.topics[ORDERS].partitions)

    cluster.do(CreatePartitions(name=ORDERS, total_count=4))
    cluster.do(DeleteTopic(topic_id=cluster.image.topics[ORDERS].topic_id))

    assert dict(seen.topics[ORDERS].partitions) == partitions


def test_a_replay_shares_whatever_it_did_not_touch() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="orders", partition_count=2, replication_factor=1))
    cluster.do(CreateTopic(name="payments", partition_count=1, replication_factor=1))
    before = cluster.image

    cluster.fence(4001)

    after = cluster.image
    untouched = [
        name for name, topic in before.topics.items() if not any(4001 in s.isr for s in topic.partitions.values())
    ]
    assert untouched
    assert all(after.topics[name] is before.topics[name] for name in untouched)
    assert after.topic_names is before.topic_names
    assert after.collision_keys is before.collision_keys
    assert after.hosted[NodeId(7)] is before.hosted[NodeId(7)]


def test_deleting_what_nobody_knows_is_refused() -> None:
    cluster = Cluster()
    assert refused(cluster, DeleteTopic(topic_id=TopicId(cluster.new_uuid()))) == ErrorCode.UNKNOWN_TOPIC_ID
    assert MetadataImage().topics == {}


def test_a_topic_made_anew_starts_above_the_highest_leader_epoch_that_its_name_ever_had() -> None:
    """Otherwise a client that knows the old one ignores the new leaders, and writes to the old ones for ever."""
    cluster = Cluster()
    cluster.create((7, 100), (100, 7))
    for _ in range(3):
        cluster.fence(100)
        cluster.unfence(100)
    highest = max(cluster.state(index).leader_epoch for index in (0, 1))
    assert highest > 0

    cluster.do(DeleteTopic(topic_id=cluster.image.topics[ORDERS].topic_id))
    cluster.create((7, 100))
    cluster.do(CreatePartitions(name=ORDERS, total_count=3))

    assert {cluster.state(index).leader_epoch for index in range(3)} == {highest + 1}
    cluster.create((7, 100), name="others")
    assert cluster.state(topic="others").leader_epoch == 0
