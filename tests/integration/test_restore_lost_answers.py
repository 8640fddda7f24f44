"""Restores whose answers get lost on the way: the target has the batch, the restore does not know it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from quorate.client.kafka_client import KafkaClient
from tests.answer_proxies import LossyProxy
from tests.backup_commands import Backups, create_topics, produce
from tests.peers.quorate_node import QuorateNode
from tests.restore_commands import Restores, all_records, client_of, without_offsets
from tests.spark_session import InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(180)

PARTITIONS = 2
RECORDS = 1000


@pytest.fixture(scope="module")
def proxy() -> Iterator[LossyProxy]:
    with LossyProxy() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def node(proxy: LossyProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateNode]:
    """All of its clients come through the proxy."""
    settings = {"durability": "os", "advertised": proxy.address}
    with QuorateNode.start(tmp_path_factory.mktemp("node"), settings=settings) as node:
        proxy.pass_on_to(node.port)
        create_topics(node.bootstrap, NewTopic("orders", PARTITIONS))
        for partition in range(PARTITIONS):
            small = {"batch.num.messages": 10}
            produce(node.bootstrap, "orders", RECORDS // PARTITIONS, partition=partition, settings=small)
        proxy.share = 0.15
        yield node


@pytest.fixture(scope="module")
def client(node: QuorateNode) -> Iterator[KafkaClient]:
    with client_of(node.bootstrap) as client:
        yield client


@pytest.mark.parametrize("preserve_offsets", [False, True])
def test_each_record_is_restored_once_though_answers_are_lost(
    node: QuorateNode, proxy: LossyProxy, client: KafkaClient, tmp_path: Path, *, preserve_offsets: bool
) -> None:
    backups = Backups(tmp_path, node.bootstrap)
    assert run_in_process(backups, backups.write_config(topics={"include": ["orders"]}), InThisProcess) is not None
    before, target = proxy.lost, f"orders-{preserve_offsets}"

    Restores(backups, node.bootstrap).run_in_process(
        topic_mapping={"orders": target}, preserve_offsets=preserve_offsets
    )

    assert proxy.lost - before >= 5
    for partition in range(PARTITIONS):
        expected, found = (all_records(client, topic, partition) for topic in ("orders", target))
        assert len(expected) == RECORDS // PARTITIONS
        assert without_offsets(found) == without_offsets(expected)
        assert [each.offset for each in found] == list(range(RECORDS // PARTITIONS))
