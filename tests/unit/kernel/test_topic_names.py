import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.topic_names import CLUSTER_METADATA, check_topic_name, is_reserved
from quorate.metadata.core.commands import CreatePartitions, CreateTopic, DeleteTopic
from quorate.metadata.core.records import PartitionChanged, TopicCreated
from tests.unit.metadata.core.cluster import Cluster
from tests.unit.metadata.core.test_topics import refused


def test_a_topic_cannot_have_the_name_of_the_metadata_log() -> None:
    cluster = Cluster()
    command = CreateTopic(name="__cluster_metadata", partition_count=1, replication_factor=1)
    assert refused(cluster, command) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "_cluster_metadata", "metadata-log", "quorum-state"])
def test_names_that_only_look_like_it_are_free(name: str) -> None:
    assert not is_reserved(check_topic_name(name))
    Cluster().do(CreateTopic(name=name, partition_count=1, replication_factor=1))


def test_such_a_topic_of_an_earlier_version_cannot_grow_but_be_deleted() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic(name="model", partition_count=1, replication_factor=1))
    (model,) = cluster.image.topics.values()
    cluster.do(DeleteTopic(topic_id=model.topic_id))
    (state,) = model.partitions.values()
    cluster.image, _ = cluster.image.replay(
        [
            TopicCreated(name=CLUSTER_METADATA, topic_id=model.topic_id),
            PartitionChanged(
                topic_id=model.topic_id,
                partition=next(iter(model.partitions)),
                replicas=state.replicas,
                isr=state.isr,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
            ),
        ],
        cluster.image.version,
    )

    growth = CreatePartitions(name=CLUSTER_METADATA, total_count=2)
    assert refused(cluster, growth) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.do(DeleteTopic(topic_id=model.topic_id))
    assert CLUSTER_METADATA not in cluster.image.topics
