"""Client quotas: set with Apache Kafka's own tool, asked for with stock clients, and held by the node."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

from tests.compat.clients.client import DEADLINE_S
from tests.compat.clients.confluent import ConfluentClient
from tests.peers.kafka_tools import ToolError, ToolShell
from tests.proofs import CONFLUENT, KAFKA_PYTHON, KAFKA_TOOLS

pytestmark = pytest.mark.peer

Run = Callable[..., str]

VALUE = bytes(10_000)
RATE = 50_000
FETCH_BYTES = 3 * len(VALUE)
# A client may use at once what fits its window: ten full samples of a second each.
WINDOW_S = 10
# Three seconds' worth more than that.
COUNT = (WINDOW_S + 3) * RATE // len(VALUE)


@pytest.fixture
def configs(tool_shell: ToolShell, bootstrap: str) -> Run:
    def run(*arguments: str) -> str:
        return tool_shell.run("kafka-configs", "--bootstrap-server", bootstrap, *arguments)

    return run


def alter(configs: Run, client_id: str, quota: str) -> None:
    configs("--alter", "--entity-type", "clients", "--entity-name", client_id, "--add-config", quota)


@pytest.mark.proves(*KAFKA_TOOLS, "quotas: kafka-configs sets, describes, deletes and is refused")
def test_quotas_are_set_described_and_deleted_with_kafka_configs(configs: Run) -> None:
    entity = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")

    configs("--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    described = configs("--describe", *entity)
    assert "user-principal 'alice'" in described
    assert "the default client-id" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described

    configs("--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs("--describe", *entity)


@pytest.mark.proves(*KAFKA_TOOLS, "quotas: kafka-configs sets, describes, deletes and is refused")
@pytest.mark.parametrize(
    ("entity", "shown"), [(("--entity-name", "10.1.2.3"), "ip '10.1.2.3'"), (("--entity-default",), "default ip")]
)
def test_quotas_of_addresses_are_set_described_and_deleted(configs: Run, entity: tuple[str, ...], shown: str) -> None:
    of_ips = ("--entity-type", "ips", *entity)
    configs("--alter", *of_ips, "--add-config", "connection_creation_rate=7000")
    described = configs("--describe", *of_ips)
    assert shown in described
    assert "connection_creation_rate=7000" in described
    configs("--alter", *of_ips, "--delete-config", "connection_creation_rate")
    assert "connection_creation_rate" not in configs("--describe", *of_ips)


@pytest.mark.proves(*KAFKA_TOOLS, "quotas: who creates too many partitions is told")
def test_the_user_of_kafka_topics_is_told_of_too_many_partitions(
    configs: Run, tool_shell: ToolShell, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    alter(configs, "greedy", "controller_mutation_rate=0.1")
    properties = tmp_path / "client.properties"
    properties.write_text("client.id=greedy")

    def create_some() -> None:
        for number in range(4):
            tool_shell.run(
                *("kafka-topics", "--bootstrap-server", bootstrap, "--command-config", str(properties)),
                *("--create", "--topic", f"{topic}-{number}", "--partitions", "3", "--replication-factor", "1"),
            )

    with pytest.raises(ToolError, match="The throttling quota has been exceeded"):
        create_some()


@pytest.mark.proves(*KAFKA_TOOLS, "quotas: kafka-configs sets, describes, deletes and is refused")
def test_refusals_reach_the_user_of_kafka_configs(configs: Run) -> None:
    with pytest.raises(ToolError, match="cannot be a fractional value"):
        alter(configs, "refused", "producer_byte_rate=0.5")
    with pytest.raises(ToolError, match="producer_rate"):
        alter(configs, "refused", "producer_rate=5")
    with pytest.raises(ToolError, match="must be a valid IP or resolvable host"):
        configs(
            "--alter",
            "--entity-type",
            "ips",
            "--entity-name",
            "nowhere.invalid",
            "--add-config",
            "connection_creation_rate=5",
        )


@pytest.mark.proves(*CONFLUENT, "quotas: a producer is held to its rate, and told so")
def test_a_producer_is_held_to_its_rate(configs: Run, bootstrap: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    alter(configs, "slow-producer", f"producer_byte_rate={RATE}")

    _, throttled_ms = seconds_to_write(bootstrap, topic, "free-producer")
    assert throttled_ms == []

    held_s, throttled_ms = seconds_to_write(bootstrap, topic, "slow-producer")
    # The last record is acknowledged at once; only what would follow has to wait for it.
    assert (COUNT - 1) * len(VALUE) <= RATE * (held_s + WINDOW_S)
    assert sum(throttled_ms) > 0


@pytest.mark.proves(*KAFKA_PYTHON, "quotas: a consumer is held to its rate")
def test_a_consumer_is_held_to_its_rate(configs: Run, bootstrap: str, topic: str) -> None:
    ConfluentClient(bootstrap).create_topic(topic)
    seconds_to_write(bootstrap, topic, "writer")
    alter(configs, "slow-consumer", f"consumer_byte_rate={RATE}")

    free_s = seconds_to_read(bootstrap, topic, "free-consumer")
    held_s = seconds_to_read(bootstrap, topic, "slow-consumer")

    assert held_s > free_s
    # Nobody waits for what would follow the last fetch.
    assert COUNT * len(VALUE) - FETCH_BYTES <= RATE * (held_s + WINDOW_S)


def seconds_to_write(bootstrap: str, topic: str, client_id: str) -> tuple[float, list[int]]:
    """The time, and what the broker told librdkafka of being held back."""
    throttled_ms: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "throttle_cb": lambda event: throttled_ms.append(int(event.throttle_time * 1000)),
        }
    )
    begun = time.monotonic()
    for _ in range(COUNT):
        producer.produce(topic, VALUE)
    assert producer.flush(2 * DEADLINE_S) == 0
    return time.monotonic() - begun, throttled_ms


def seconds_to_read(bootstrap: str, topic: str, client_id: str) -> float:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        begun = time.monotonic()
        missing = COUNT
        while missing > 0:
            missing -= sum(len(batch) for batch in consumer.poll(timeout_ms=500).values())
            assert time.monotonic() - begun < 2 * DEADLINE_S
        return time.monotonic() - begun
