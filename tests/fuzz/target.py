"""The nodes that are attacked, with topics, groups and producers in them."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition

from quorate.client.admin.topics import NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TopicName
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.chaos.load import PARTITION_COUNT
from tests.eventually import eventually
from tests.fuzz import world as w
from tests.fuzz.world import World
from tests.integration.wire_client import WireClient
from tests.peers.quorate_cluster import IDS, QuorateCluster

CLUSTER_ID: Final = "tests"
ONE_NODE: Final = IDS[:1]
_RECORDS: Final = 500
_PRODUCERS: Final = 3


def start_cluster(folder: Path, node_ids: tuple[int, ...]) -> QuorateCluster:
    copies = len(node_ids)
    configs = {
        "default.replication.factor": copies,
        "min.insync.replicas": min(2, copies),
        "num.partitions": 2,
        "offsets.topic.replication.factor": copies,
    }
    return QuorateCluster(folder, node_ids, configs)


def furnish(cluster: QuorateCluster) -> World:
    """Put data in, and note what of it a frame may name."""
    servers = tuple(node.bootstrap for node in cluster.nodes.values())
    copies = len(cluster.nodes)
    with KafkaClient(ClientConfig(bootstrap_servers=servers)) as client:
        topics = [
            NewTopic(name=TopicName(name), partitions=PARTITION_COUNT, replication_factor=copies)
            for name in (w.WITNESS_TOPIC, w.STANDING_TOPIC, w.COMPACTED_TOPIC)
        ]
        ids = client.topics.create(topics)
    _write_records(cluster.bootstrap)
    _commit_offsets(cluster.bootstrap)
    with ExitStack() as open_clients:
        wires = [open_clients.enter_context(WireClient(server)) for server in servers]
        producers = tuple(_new_producer(wires, None) for _ in range(_PRODUCERS))
        producers += tuple(_new_producer(wires, name) for name in w.TRANSACTIONAL_IDS)
        member_id = _join(wires)
    directories = [_directory_id(node.data_dir) for node in cluster.nodes.values()]
    return World(
        cluster_id=CLUSTER_ID,
        node_ids=tuple(cluster.nodes),
        topic_ids=tuple(ids[TopicName(name)] for name in (w.WITNESS_TOPIC, w.STANDING_TOPIC, w.COMPACTED_TOPIC)),
        producers=producers,
        member_ids=(member_id,),
        directory_ids=tuple(directories),
    )


def _write_records(bootstrap: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all"})
        for number in range(_RECORDS):
            for topic in (w.STANDING_TOPIC, w.COMPACTED_TOPIC):
                producer.produce(topic, b"value-%d" % number, key=b"key-%d" % (number % 50))
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": w.TRANSACTIONAL_IDS[0]})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(w.STANDING_TOPIC, b"committed")
    producer.commit_transaction(60)


def _commit_offsets(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": w.GROUPS[0], "enable.auto.commit": False})
    place = TopicPartition(w.STANDING_TOPIC, 0, 5)
    eventually(lambda: consumer.commit(offsets=[place], asynchronous=False), "a committed offset")
    consumer.close()


def _new_producer(wires: Sequence[WireClient], transactional_id: str | None) -> tuple[int, int]:
    """From whichever node coordinates it."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    def ask() -> tuple[int, int] | None:
        answers = (wire.call(request, 4, InitProducerIdResponse) for wire in wires)
        given = (answer for answer in answers if answer.error_code == ErrorCode.NONE)
        return next(((answer.producer_id, answer.producer_epoch) for answer in given), None)

    return eventually(ask, "a producer id")


def _join(wires: Sequence[WireClient]) -> str:
    """The id of a member that is never heard again."""
    request = JoinGroupRequest(
        group_id=w.GROUPS[1],
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
    )

    def ask() -> str | None:
        return next(filter(None, (wire.call(request, 3, JoinGroupResponse).member_id for wire in wires)), None)

    return eventually(ask, "a member id")


def _directory_id(data_dir: Path) -> UUID:
    lines = dict(line.split("=", 1) for line in (data_dir / "meta.properties").read_text().splitlines())
    return UUID(lines["directory.id"])
