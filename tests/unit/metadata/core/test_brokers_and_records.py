"""Broker registration, producer ids, and the records as they are stored."""

from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import AllocateProducerIds, Command, CreateTopic, FormCluster, RegisterBroker
from quorate.metadata.core.records import BrokerEndpoint, decode_record, encode_record
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.unit.metadata.core.cluster import Cluster


def test_a_restarted_broker_has_a_new_broker_epoch_and_its_partitions_a_new_leader_epoch() -> None:
    cluster = Cluster(nodes=(7, 100))
    cluster.do(CreateTopic(name="orders", partition_count=2, replication_factor=1))
    before = cluster.image

    cluster.do(RegisterBroker(node_id=NodeId(7), host="elsewhere", port=9093, rack="r1", fenced=False))

    after = cluster.image
    assert after.brokers[NodeId(7)].broker_epoch > before.brokers[NodeId(7)].broker_epoch
    assert (after.brokers[NodeId(7)].host, after.brokers[NodeId(7)].rack) == ("elsewhere", "r1")
    for index, state in before.topics[TopicName("orders")].partitions.items():
        expected = state.leader_epoch + (1 if state.leader == 7 else 0)
        changed = after.partition(TopicName("orders"), PartitionIndex(index))
        assert changed is not None
        assert changed.leader_epoch == expected


def test_a_broker_is_reached_by_each_of_its_listeners_and_no_other() -> None:
    inside = BrokerEndpoint(listener="INSIDE", host="10.0.0.7", port=9092)
    outside = BrokerEndpoint(listener="OUTSIDE", host="kafka.example", port=9093)
    cluster = Cluster(nodes=())
    cluster.do(RegisterBroker(node_id=NodeId(7), host="10.0.0.7", port=9092, endpoints=(inside, outside), fenced=False))

    broker = decode_image(encode_image(cluster.image)).brokers[NodeId(7)]
    assert [broker.endpoint(name) for name in ("INSIDE", "OUTSIDE", "PLAINTEXT")] == [inside, outside, None]
    assert broker.endpoint("") == inside


def test_a_broker_that_names_no_listener_has_the_default_one() -> None:
    cluster = Cluster(nodes=(7,))
    broker = cluster.image.brokers[NodeId(7)]
    assert broker.endpoints == ()
    assert broker.endpoint("PLAINTEXT") == BrokerEndpoint(listener="PLAINTEXT", host=broker.host, port=broker.port)
    assert broker.endpoint("SSL") is None


def test_producer_id_blocks_never_overlap() -> None:
    cluster = Cluster()
    blocks = [cluster.do(AllocateProducerIds(count=1000)).answer.first for _ in range(3)]
    assert blocks == [0, 1000, 2000]


def test_a_cluster_id_looks_like_kafkas() -> None:
    cluster = Cluster()
    cluster.do(FormCluster())
    assert len(cluster.image.cluster_id) == 22
    assert "=" not in cluster.image.cluster_id


def test_a_cluster_keeps_the_id_it_has() -> None:
    cluster = Cluster()
    cluster.do(FormCluster())
    formed = cluster.image.cluster_id
    assert cluster.do(FormCluster()).records == ()
    assert cluster.image.cluster_id == formed


def test_every_record_survives_the_log() -> None:
    cluster = Cluster(nodes=())
    commands: list[Command] = [
        FormCluster(),
        RegisterBroker(node_id=NodeId(7), host="h", port=1, fenced=False),
        CreateTopic(name="orders", partition_count=2, replication_factor=1, configs={"retention.ms": "5"}),
        AllocateProducerIds(),
    ]
    for command in commands:
        for record in cluster.do(command).records:
            assert decode_record(encode_record(record)) == record
