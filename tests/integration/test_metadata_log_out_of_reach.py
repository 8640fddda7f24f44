"""No client reaches the log of the metadata: its name is reserved, and no topic's folder can be its own."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.protocol.messages import add_partitions_to_txn as add_partitions
from quorate.protocol.messages import alter_partition_reassignments as reassign
from quorate.protocol.messages import create_partitions as grow
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import (
    delete_records,
    delete_topics,
    describe_producers,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from quorate.protocol.messages import describe_configs as configs
from quorate.protocol.messages import describe_topic_partitions as describe
from quorate.protocol.messages import elect_leaders as elect
from quorate.protocol.messages import find_coordinator as coordinator
from quorate.protocol.messages import incremental_alter_configs as alter
from quorate.protocol.messages import init_producer_id as init
from quorate.protocol.messages import offset_for_leader_epoch as epochs
from quorate.protocol.schema import Request, Response
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.storage.partition_folders import partition_index
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic
from tests.integration.wire_client import WireClient

NAME = "__cluster_metadata"
IDS = (7, 100, 4001)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BATCH = build_batch([Record(Offset(0), 1_700_000_000_000, None, b"x")])

ASKED: list[tuple[Request, int, type[Response], ErrorCode]] = [
    (
        create.CreateTopicsRequest(topics=[create.CreatableTopic(name=NAME, num_partitions=1, replication_factor=1)]),
        7,
        create.CreateTopicsResponse,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    (
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=NAME)]),
        9,
        metadata.MetadataResponse,
        UNKNOWN,
    ),
    (
        produce.ProduceRequest(
            acks=1,
            timeout_ms=5_000,
            topic_data=[
                produce.TopicProduceData(
                    name=NAME, partition_data=[produce.PartitionProduceData(index=0, records=BATCH)]
                )
            ],
        ),
        11,
        produce.ProduceResponse,
        UNKNOWN,
    ),
    (
        fetch.FetchRequest(
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                fetch.FetchTopic(
                    topic=NAME, partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=1 << 20)]
                )
            ],
        ),
        12,
        fetch.FetchResponse,
        UNKNOWN,
    ),
    (
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[list_offsets.ListOffsetsTopic(name=NAME, partitions=[list_offsets.ListOffsetsPartition()])],
        ),
        7,
        list_offsets.ListOffsetsResponse,
        UNKNOWN,
    ),
    (
        delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name=NAME)], timeout_ms=5_000),
        6,
        delete_topics.DeleteTopicsResponse,
        UNKNOWN,
    ),
    (
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=NAME, partitions=[delete_records.DeleteRecordsPartition(offset=1)]
                )
            ],
            timeout_ms=5_000,
        ),
        2,
        delete_records.DeleteRecordsResponse,
        UNKNOWN,
    ),
    (
        epochs.OffsetForLeaderEpochRequest(
            topics=[epochs.OffsetForLeaderTopic(topic=NAME, partitions=[epochs.OffsetForLeaderPartition()])]
        ),
        4,
        epochs.OffsetForLeaderEpochResponse,
        UNKNOWN,
    ),
    (
        grow.CreatePartitionsRequest(topics=[grow.CreatePartitionsTopic(name=NAME, count=3, assignments=None)]),
        3,
        grow.CreatePartitionsResponse,
        UNKNOWN,
    ),
    (
        configs.DescribeConfigsRequest(
            resources=[configs.DescribeConfigsResource(resource_type=2, resource_name=NAME, configuration_keys=None)]
        ),
        4,
        configs.DescribeConfigsResponse,
        UNKNOWN,
    ),
    (
        alter.IncrementalAlterConfigsRequest(
            resources=[
                alter.AlterConfigsResource(
                    resource_type=2,
                    resource_name=NAME,
                    configs=[alter.AlterableConfig(name="retention.ms", value="1")],
                )
            ]
        ),
        1,
        alter.IncrementalAlterConfigsResponse,
        UNKNOWN,
    ),
    (
        reassign.AlterPartitionReassignmentsRequest(
            topics=[
                reassign.ReassignableTopic(name=NAME, partitions=[reassign.ReassignablePartition(replicas=[IDS[0]])])
            ]
        ),
        0,
        reassign.AlterPartitionReassignmentsResponse,
        UNKNOWN,
    ),
    (
        elect.ElectLeadersRequest(topic_partitions=[elect.TopicPartitions(topic=NAME, partitions=[0])]),
        2,
        elect.ElectLeadersResponse,
        UNKNOWN,
    ),
    (
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=NAME, partition_indexes=[0])]
        ),
        0,
        describe_producers.DescribeProducersResponse,
        UNKNOWN,
    ),
    (
        describe.DescribeTopicPartitionsRequest(topics=[describe.TopicRequest(name=NAME)]),
        0,
        describe.DescribeTopicPartitionsResponse,
        UNKNOWN,
    ),
    (
        offset_commit.OffsetCommitRequest(
            group_id="readers",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name=NAME, partitions=[offset_commit.OffsetCommitRequestPartition(committed_offset=3)]
                )
            ],
        ),
        9,
        offset_commit.OffsetCommitResponse,
        UNKNOWN,
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs={"auto.leader.rebalance.enable": False}) as running:
        ReplicatedTopic(running, "orders", IDS).write(b"kept")
        yield running


@pytest.fixture
def stops_unharmed(cluster: ClusterInProcess) -> Iterator[None]:
    """Whatever a client did: after a restart of all nodes everything is where it was."""
    yield
    cluster.kill(*IDS)
    cluster.restart(*IDS)
    topic = ReplicatedTopic.__new__(ReplicatedTopic)
    topic.cluster, topic.name, topic.down = cluster, "orders", set()
    assert topic.read() == [b"kept"]


def error_codes(answer: object) -> Iterator[int]:
    if isinstance(answer, msgspec.Struct):
        for field in answer.__struct_fields__:
            value = getattr(answer, field)
            if field.endswith("error_code") and value:
                yield value
            yield from error_codes(value)
    elif isinstance(answer, list | tuple):
        for part in answer:
            yield from error_codes(part)


@pytest.mark.parametrize(
    ("request_", "version", "response_type", "expected"), ASKED, ids=lambda v: getattr(type(v), "__name__", "")
)
def test_the_name_is_reserved_in_every_api(
    cluster: ClusterInProcess, request_: Request, version: int, response_type: type[Response], expected: ErrorCode
) -> None:
    for node_id in IDS:
        with WireClient(cluster.address_of(node_id)) as client:
            answer = client.call(request_, version, response_type)
        assert set(error_codes(answer)) == {expected}, answer


def test_a_transaction_cannot_contain_it(cluster: ClusterInProcess) -> None:
    node_id, producer = eventually(lambda: begin_transactions(cluster), "a transaction coordinator")
    transaction = add_partitions.AddPartitionsToTxnTransaction(
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[add_partitions.AddPartitionsToTxnTopic(name=NAME, partitions=[0])],
    )
    with WireClient(cluster.address_of(node_id)) as client:
        request = add_partitions.AddPartitionsToTxnRequest(transactions=[transaction])
        answer = client.call(request, 4, add_partitions.AddPartitionsToTxnResponse)
    assert set(error_codes(answer)) == {UNKNOWN}


def begin_transactions(cluster: ClusterInProcess) -> tuple[int, init.InitProducerIdResponse] | None:
    for node_id in IDS:
        with WireClient(cluster.address_of(node_id)) as client:
            find = coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
            client.call(find, 4, coordinator.FindCoordinatorResponse)
            begin = init.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
            answer = client.call(begin, 4, init.InitProducerIdResponse)
        if answer.error_code == ErrorCode.NONE:
            return node_id, answer
    return None


@pytest.mark.usefixtures("stops_unharmed")
def test_creating_and_deleting_it_then_a_restart_deletes_no_partition(cluster: ClusterInProcess) -> None:
    topic = create.CreatableTopic(name=NAME, num_partitions=3, replication_factor=3)
    with WireClient(cluster.address_of(7)) as client:
        client.call(create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, create.CreateTopicsResponse)
        doomed = [delete_topics.DeleteTopicState(name=NAME)]
        client.call(delete_topics.DeleteTopicsRequest(topics=doomed), 6, delete_topics.DeleteTopicsResponse)


@pytest.mark.usefixtures("stops_unharmed")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_producer_cannot_write_into_it(cluster: ClusterInProcess, acks: str) -> None:
    reports = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "message.timeout.ms": 2_000, "log_level": 0}
    )
    producer.produce(NAME, b"x", partition=0, on_delivery=lambda error, _: reports.append(error))
    producer.flush(30)
    assert len(reports) == 1
    assert reports[0] is not None


def test_a_consumer_cannot_read_it(cluster: ClusterInProcess) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "curious",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(NAME, 0, 0)])
    read = [message for message in consumer.consume(10, timeout=2) if not message.error()]
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition(NAME, 0), timeout=2)
    consumer.close()
    assert not read


def test_nothing_that_a_node_keeps_can_be_the_folder_of_a_topic(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=1, folder=tmp_path) as running:
        running.kill(1)
        running.restart(1)
        names = {path.name for path in (tmp_path / "node-1").iterdir()}
    assert {"metadata-log", "meta.properties", "quorum-state"} <= names
    assert [name for name in names if partition_index(name) is not None] == []
