"""Replication as clients and operators see it, on a whole cluster."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import alter_partition_reassignments as alter
from quorate.protocol.messages import delete_records, elect_leaders
from quorate.protocol.messages import list_partition_reassignments as ongoing
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic

IDS = (7, 100, 4001)
BY_HAND = {
    "auto.leader.rebalance.enable": False,
    "auto.new.node.rebalance.enable": False,
    "replica.lag.time.max.ms": 1_000,
    "offsets.topic.num.partitions": 3,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs=BY_HAND, folder=tmp_path) as running:
        yield running


def test_a_node_that_does_not_lead_names_the_leader_its_epoch_and_its_address(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", (7, 100))
    topic.wait_for_isr(7, 100)
    epoch = topic.describe().leader_epoch
    for node_id in (100, 4001):  # A follower, and a node without a replica.
        answer = topic.produce(node_id, b"x", version=11)
        refused = answer.responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (7, epoch)
        assert [f"{at.host}:{at.port}" for at in answer.node_endpoints] == [cluster.address_of(7)]
        read = topic.fetch(node_id, version=16)
        data = read.responses[0].partitions[0]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (7, epoch)
        assert [f"{at.host}:{at.port}" for at in read.node_endpoints] == [cluster.address_of(7)]
        assert topic.fetch(node_id, version=12).responses[0].partitions[0].current_leader.leader_id == 7
        old = topic.produce(node_id, b"x", version=9).responses[0].partition_responses[0]
        assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert old.current_leader.leader_id == -1  # The version has no room for it.


def test_a_producers_batches_keep_their_order_where_the_first_came_before_the_node_led(
    cluster: ClusterInProcess,
) -> None:
    topic = ReplicatedTopic(cluster, "orders", (7, 100), {"min.insync.replicas": "1"})
    topic.wait_for_isr(7, 100)

    def send(sequence: int) -> int:
        answer = topic.produce(100, b"%d" % sequence, producer_id=500, sequence=sequence)
        return answer.responses[0].partition_responses[0].error_code

    assert send(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    topic.kill(7)
    topic.wait_for_leader(100)
    # Neither taken before the first, nor told to be out of order: a client may take a new epoch for that.
    assert send(1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [send(sequence) for sequence in (0, 1)] == [ErrorCode.NONE, ErrorCode.NONE]
    assert topic.read() == [b"0", b"1"]


def test_acks_all_on_many_partitions_works_from_whichever_node_the_client_knows(cluster: ClusterInProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("wide", num_partitions=30, replication_factor=3)])["wide"].result(20)
    for node_id in IDS:
        producer = Producer({"bootstrap.servers": cluster.address_of(node_id), "acks": "all"})
        outcomes: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message, outcomes: list[KafkaError | None] = outcomes) -> None:
            outcomes.append(error)

        for partition in range(30):
            producer.produce("wide", b"x", partition=partition, on_delivery=delivered)
        assert producer.flush(20) == 0
        assert outcomes == [None] * 30


def test_a_cluster_whose_quorum_leader_leads_no_partition_works(cluster: ClusterInProcess) -> None:
    with KafkaClient(ClientConfig(bootstrap_servers=tuple(cluster.bootstrap_servers.split(",")))) as client:
        quorum_leader = client.quorum.describe().leader
    others = [node_id for node_id in IDS if node_id != quorum_leader]
    topic = ReplicatedTopic(cluster, "orders", others, {"min.insync.replicas": "1"})

    assert topic.write(b"x") == 0
    topic.kill(others[0])
    topic.wait_for_leader(others[1])
    assert topic.write(b"y") == 1
    topic.restart(others[0])
    topic.wait_for_isr(*others)
    assert topic.read() == [b"x", b"y"]
    assert topic.produce(quorum_leader, b"z").responses[0].partition_responses[0].error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def test_too_few_replicas_in_sync_refuse_acks_all_and_no_more(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", (7, 100), {"min.insync.replicas": "2"})
    assert topic.write(b"x") == 0
    topic.kill(100)
    topic.wait_for_isr(7)
    refused = topic.produce(7, b"y").responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert topic.write(b"z", acks=1) == 1
    topic.restart(100)
    topic.wait_for_isr(7, 100)
    assert topic.write(b"all again") == 2


def test_metadata_tells_who_is_offline_and_who_is_in_sync(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.kill(100)
    topic.wait_for_isr(7, 4001)
    for node_id in (7, 4001):
        state = topic.describe(node_id)
        assert (set(state.replica_nodes), list(state.offline_replicas)) == (set(IDS), [100])
    topic.restart(100)
    topic.wait_for_isr(*IDS)
    assert list(topic.describe().offline_replicas) == []


def test_a_dead_follower_delays_a_write_no_longer_than_its_fencing(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS, {"min.insync.replicas": "2"})
    topic.kill(100)
    assert topic.write(b"x") == 0


def test_an_idempotent_retry_gets_its_offset_from_the_next_leader(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"before")
    first = topic.produce(7, b"x", b"y", producer_id=5).responses[0].partition_responses[0]
    topic.kill(7)
    leader = topic.wait_for_leader(100, 4001)
    again = topic.produce(leader, b"x", b"y", producer_id=5).responses[0].partition_responses[0]
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert topic.read() == [b"before", b"x", b"y"]
    # What is missing may be under way to the dead one: it is not taken, and not told to be out of order yet.
    early = topic.produce(leader, b"z", producer_id=5, sequence=9).responses[0].partition_responses[0]
    assert early.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert topic.read() == [b"before", b"x", b"y"]


def test_a_group_keeps_its_offsets_when_its_coordinator_dies(cluster: ClusterInProcess) -> None:
    ReplicatedTopic(cluster, "orders", IDS)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer(settings)
    place = TopicPartition("orders", 0, 41)
    eventually(lambda: consumer.commit(offsets=[place], asynchronous=False), "the group to commit")
    consumer.close()
    for node_id in IDS:  # One of them is the coordinator.
        cluster.kill(node_id)
        again = Consumer(settings)
        (found,) = again.committed([TopicPartition("orders", 0)], timeout=30)
        again.close()
        assert found.offset == 41
        cluster.restart(node_id)


def test_a_node_that_is_told_to_stop_hands_its_leaderships_over_first(cluster: ClusterInProcess) -> None:
    topic = ReplicatedTopic(cluster, "orders", IDS)
    topic.write(b"x")
    cluster.stop(7)
    topic.down.add(7)
    state = topic.describe(100)  # No waiting: it was done before the node went.
    assert state.leader_id in (100, 4001)
    assert 7 not in state.isr_nodes
    assert topic.write(b"y") == 1
    topic.restart(7)
    topic.wait_for_isr(*IDS)
    elect_preferred(topic)
    assert topic.wait_for_leader(7) == 7
    assert topic.read() == [b"x", b"y"]


def test_reassignment_moves_the_data_and_deletes_it_where_it_was(cluster: ClusterInProcess, tmp_path: Path) -> None:
    topic = ReplicatedTopic(cluster, "orders", (7, 100))
    topic.write(b"a", b"b", b"c", b"d")
    topic.write(b"e")
    forget_before(topic, 7, 2)  # Inside of a batch: the new replica has to cope with that.
    reassign(topic, 4001)
    eventually(lambda: list(topic.describe().replica_nodes) == [4001], "the partition to have moved")
    assert topic.wait_for_leader(4001) == 4001
    eventually(lambda: topic.read(2) == [b"c", b"d", b"e"], "the records to be there")
    assert topic.fetch(4001, offset=1).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert topic.write(b"f") == 5
    assert (tmp_path / "node-4001" / "orders-0").exists()
    for node_id in (7, 100):
        folder = tmp_path / f"node-{node_id}" / "orders-0"
        eventually(lambda folder=folder: not folder.exists(), f"{folder} to go")  # type: ignore[misc]


@pytest.mark.parametrize(("side", "node_id"), [("leader", 7), ("follower", 100)])
def test_a_throttled_replica_catches_up_no_faster_than_it_may(
    cluster: ClusterInProcess, side: str, node_id: int
) -> None:
    configs = {f"{side}.replication.throttled.replicas": f"0:{node_id}", "min.insync.replicas": "1"}
    topic = ReplicatedTopic(cluster, "orders", (7, 100), configs)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    rate = ConfigEntry(f"{side}.replication.throttled.rate", "100000", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=[rate])
    admin.incremental_alter_configs([broker])[broker].result(20)
    topic.kill(100)
    topic.wait_for_isr(7)
    for _ in range(10):
        topic.write(b"x" * 50_000)
    started = monotonic()
    topic.restart(100)
    topic.write(b"in sync or not, a write does not wait for the one that catches up")
    topic.wait_for_isr(7, 100)
    assert monotonic() - started > 3  # 500 kB at 100 kB/s; the first second may be a burst.


def test_only_a_topic_that_allows_it_gets_a_leader_that_was_not_in_sync(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=(1, 2, 3, 4, 5), configs=BY_HAND, folder=tmp_path) as cluster:
        strict = ReplicatedTopic(cluster, "strict", (1, 2), {"min.insync.replicas": "1"})
        lossy = ReplicatedTopic(
            cluster, "lossy", (1, 2), {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        )
        for topic in (strict, lossy):
            topic.wait_for_isr(1, 2)
            topic.write(b"both")
            topic.down.add(2)
        cluster.kill(2)
        for topic in (strict, lossy):
            topic.wait_for_isr(1)
            topic.write(b"one")
            topic.down.add(1)
        cluster.kill(1)
        cluster.restart(2)
        assert lossy.wait_for_leader(2) == 2
        assert lossy.read() == [b"both"]
        assert strict.describe().leader_id == -1
        assert list(strict.describe().isr_nodes) == [1]
        assert lossy.write(b"other") == 1
        cluster.restart(1)
        for topic in (strict, lossy):
            topic.down.clear()
            topic.wait_for_isr(1, 2)
        assert strict.read() == [b"both", b"one"]
        assert lossy.read() == [b"both", b"other"]


def elect_preferred(topic: ReplicatedTopic) -> None:
    request = elect_leaders.ElectLeadersRequest(
        election_type=0,
        topic_partitions=[elect_leaders.TopicPartitions(topic=topic.name, partitions=[0])],
        timeout_ms=10_000,
    )
    with topic.connect(100) as client:
        answer = client.call(request, 2, elect_leaders.ElectLeadersResponse)
    assert answer.error_code == ErrorCode.NONE


def reassign(topic: ReplicatedTopic, *replicas: int) -> None:
    partition = alter.ReassignablePartition(partition_index=0, replicas=replicas)
    request = alter.AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[alter.ReassignableTopic(name=topic.name, partitions=[partition])]
    )
    with topic.connect(100) as client:
        answer = client.call(request, 0, alter.AlterPartitionReassignmentsResponse)
        assert answer.error_code == ErrorCode.NONE
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer
        listed = client.call(
            ongoing.ListPartitionReassignmentsRequest(timeout_ms=10_000),
            0,
            ongoing.ListPartitionReassignmentsResponse,
        )
    assert listed.error_code == ErrorCode.NONE


def forget_before(topic: ReplicatedTopic, leader: int, offset: int) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=10_000
    )
    with topic.connect(leader) as client:
        answer = client.call(request, 2, delete_records.DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer
