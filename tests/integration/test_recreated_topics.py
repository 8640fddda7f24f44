"""Topics that are deleted and made anew under clients that know the old one."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic

IDS = (7, 100, 4001)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=IDS, configs={"auto.leader.rebalance.enable": False}) as running:
        yield running


def delivered(producer: Producer, topic: str, within_s: float) -> bool:
    outcomes: list[KafkaError | None] = []

    def report(error: KafkaError | None, _: Message) -> None:
        outcomes.append(error)

    producer.produce(topic, b"x", partition=0, on_delivery=report)
    producer.flush(within_s)
    return outcomes == [None]


def test_a_producer_follows_a_topic_that_is_made_anew_with_another_leader(cluster: ClusterInProcess) -> None:
    """librdkafka ignores metadata with a lower leader epoch than it knows: it would ask the old leader for ever."""
    old = ReplicatedTopic(cluster, "anew", [7, 100])
    for node_id in (7, 100, 7):
        old.kill(node_id)
        old.wait_for_leader(107 - node_id)
        old.restart(node_id)
        old.wait_for_isr(7, 100)
    epoch = old.describe().leader_epoch
    assert epoch >= 3
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 60_000, "log_level": 0})
    assert eventually(lambda: delivered(producer, "anew", 30), "the first record to be written")

    with old.connect(7) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="anew")], timeout_ms=10_000)
        answer = client.call(request, 6, DeleteTopicsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE
    new = ReplicatedTopic(cluster, "anew", [4001])

    assert new.describe().leader_epoch > epoch
    assert delivered(producer, "anew", 30)
    assert new.read() == [b"x"]
