"""What a stock client does by itself, shown with Apache Kafka: the chaos tests need not blame Quorate for it.

When the leader epoch changes, a consumer of librdkafka asks where the epoch of its position ends. A Fetch that was
under way still moves the position, the next Metadata answer makes the moved position the one to be checked, and the
answer to the old question is held against that. So the consumer goes back to the end of an epoch that it left long ago.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from quorate.client.kafka_client import KafkaClient
from quorate.protocol.apis import ApiKey
from tests.answer_proxies import HoldingProxy
from tests.eventually import eventually
from tests.kafka.leadership import Leadership
from tests.kafka.secured_kafka import NODE_IDS, SecuredKafka
from tests.kafka.test_leader_changes import assigned
from tests.kafka.writing import values, write

FIRST, OTHER, THIRD = NODE_IDS
COUNT = 10
#: The one that is read, and one for which the third broker can be asked anything.
WATCHED, BESIDE = 0, 1
#: Longer than the test lasts: a Fetch is answered when there are records, and not before.
FETCH_WAIT_MS = 60_000


@pytest.fixture
def proxies(kafka: SecuredKafka) -> Iterator[dict[int, HoldingProxy]]:
    with ExitStack() as stack:
        proxies = {node_id: stack.enter_context(HoldingProxy(kafka.proxy_port(node_id))) for node_id in NODE_IDS}
        for node_id, proxy in proxies.items():
            proxy.pass_on_to(kafka.port(node_id, "PROXIED"))
        yield proxies


class Reader:
    """Asks for Metadata when it is told to, and notes the offset and leader epoch of what it reads."""

    def __init__(self, proxies: dict[int, HoldingProxy], topic: str) -> None:
        self._topic = topic
        self.read: list[tuple[int | None, int | None]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": ",".join(proxy.address for proxy in proxies.values()),
                "group.id": topic,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "topic.metadata.refresh.interval.ms": -1,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, WATCHED, 0)])

    def has_read(self, count: int) -> bool:
        for message in self.consumer.consume(100, 0.05):
            assert message.error() is None, message.error()
            self.read.append((message.offset(), message.leader_epoch()))
        return len(self.read) >= count

    def learn(self) -> None:
        """Ask for Metadata. The broker is asked that was asked anything last, to the second: here the third one."""
        time.sleep(1.1)
        self.consumer.get_watermark_offsets(TopicPartition(self._topic, BESIDE), timeout=30)
        self.consumer.list_topics(self._topic, timeout=30)


def test_a_consumer_of_librdkafka_goes_back_to_where_an_epoch_ended(
    kafka: SecuredKafka, client: KafkaClient, leadership: Leadership, proxies: dict[int, HoldingProxy], name: str
) -> None:
    assigned(client, name, (FIRST, OTHER), (THIRD, FIRST))
    write(kafka.bootstrap, name, WATCHED, values(COUNT))
    reader = Reader(proxies, name)
    other = proxies[OTHER]

    def is_waiting_for_records() -> bool:
        asked = other.asked[ApiKey.FETCH]
        reader.has_read(0)
        time.sleep(0.3)  # A new leader may answer a few times at once, without records.
        return asked == other.asked[ApiKey.FETCH] == other.answered[ApiKey.FETCH] + 1

    eventually(lambda: reader.has_read(COUNT), "the first records")
    leadership.move(name, WATCHED, OTHER)
    eventually(is_waiting_for_records, "a Fetch in epoch 1")
    answered = other.answered[ApiKey.FETCH]
    other.hold(ApiKey.FETCH)
    write(kafka.bootstrap, name, WATCHED, values(COUNT))
    eventually(lambda: other.answered[ApiKey.FETCH] > answered, "records of epoch 1 on their way")

    leadership.move(name, WATCHED, FIRST)
    leadership.move(name, WATCHED, OTHER)
    asked = other.asked[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    other.hold(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    reader.learn()
    eventually(lambda: other.asked[ApiKey.OFFSET_FOR_LEADER_EPOCH] > asked, "a question where epoch 0 ends")
    other.release(ApiKey.FETCH)
    eventually(lambda: reader.has_read(2 * COUNT), "the records of epoch 1")
    reader.learn()
    other.release(ApiKey.OFFSET_FOR_LEADER_EPOCH)

    eventually(lambda: reader.has_read(3 * COUNT), "the records of epoch 1, once more")
    epochs = {0: range(COUNT), 1: range(COUNT, 2 * COUNT)}
    assert reader.read == [(offset, epoch) for epoch in (0, 1, 1) for offset in epochs[epoch]]
    reader.consumer.close()
