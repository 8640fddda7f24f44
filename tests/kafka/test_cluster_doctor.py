"""The doctor on Apache Kafka: its claims hold, its brokers refuse as the doctor expects, and nothing is written."""

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from quorate.cli.commands import app
from quorate.cli.doctor.examination import try_claims
from quorate.cli.doctor.observations import Attempt, LeaderClaim, Trial
from quorate.client.admin.topics import NewTopic
from quorate.client.cluster import Cluster
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import PartitionIndex, TopicName, TopicPartition
from tests.eventually import eventually
from tests.kafka.secured_kafka import NODE_IDS, SecuredKafka
from tests.kafka.writing import write


def doctor(kafka: SecuredKafka, *options: str) -> Result:
    return CliRunner().invoke(app, ["cluster", "doctor", "--bootstrap-server", kafka.bootstrap, *options])


@pytest.fixture
def partitions(kafka: SecuredKafka, client: KafkaClient, name: str) -> list[TopicPartition]:
    """Of one topic that all brokers have, and one that is on one broker only; the first has records."""
    everywhere, alone = TopicName(name), TopicName(f"{name}-alone")
    client.topics.create([NewTopic(name=everywhere, partitions=6, replication_factor=3)])
    configs = {"min.insync.replicas": "1"}
    client.topics.create([NewTopic(name=alone, partitions=1, replication_factor=1, configs=configs)])
    write(kafka.bootstrap, name, 0, [b"a", b"b", b"c"])
    client.groups.offsets(f"{name}-group")  # Now there are coordinators.
    return [
        *(TopicPartition(everywhere, PartitionIndex(index)) for index in range(6)),
        TopicPartition(alone, PartitionIndex(0)),
    ]


def findings(kafka: SecuredKafka, partitions: list[TopicPartition]) -> list[Any]:
    """Other tests leave topics behind that may well lack replicas."""
    told = json.loads(doctor(kafka, "--format", "json").output)
    names = {str(partition) for partition in partitions}
    return [each for each in told["findings"] if each["is_disagreement"] or each["subject"] in names]


def test_healthy_cluster_has_no_disagreement(kafka: SecuredKafka, partitions: list[TopicPartition]) -> None:
    assert findings(kafka, partitions) == []
    assert re.search(r"3 nodes, \d+ partitions, \d+ claims tried, 0 disagreements", doctor(kafka).output)


def test_nothing_is_written(kafka: SecuredKafka, client: KafkaClient, partitions: list[TopicPartition]) -> None:
    before = client.offsets.latest(partitions), client.producers.describe(partitions)

    doctor(kafka)

    assert (client.offsets.latest(partitions), client.producers.describe(partitions)) == before
    assert not [group for group in client.groups.list() if "doctor" in group.group_id]


def test_leader_looks_at_the_checksum_and_others_name_the_leader(
    kafka: SecuredKafka, client: KafkaClient, partitions: list[TopicPartition]
) -> None:
    topics = client.cluster.metadata({partition.topic for partition in partitions}).topics
    found = {name: topics[name.topic].partitions[name.partition] for name in partitions}
    claims = {name: LeaderClaim(each.leader, each.leader_epoch) for name, each in found.items()}

    trials = [trial for node_id in NODE_IDS for trial in tried(kafka, node_id, claims)]

    assert len(trials) == 2 * 3 * len(partitions)
    for trial in trials:
        is_leader = trial.node_id == trial.claim.leader
        if trial.attempt is Attempt.FETCH:
            assert trial.outcome == (ErrorCode.NONE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER), trial
        else:
            assert trial.outcome == (ErrorCode.CORRUPT_MESSAGE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER), (
                trial
            )
            assert trial.hint == (None if is_leader else trial.claim)


def tried(kafka: SecuredKafka, node_id: int, claims: dict[TopicPartition, LeaderClaim]) -> list[Trial]:
    cluster = Cluster(ClientConfig(bootstrap_servers=(kafka.nodes[node_id].bootstrap,)))
    try:
        node = cluster.brokers()[node_id]  # type: ignore[index]
        return list(try_claims(cluster.connection_to(node.address), node.node_id, claims, writes=True))
    finally:
        cluster.close()


def test_broker_that_is_killed_and_comes_back_leaves_no_error(
    kafka: SecuredKafka, partitions: list[TopicPartition]
) -> None:
    kafka.nodes[100].kill()
    try:
        down = doctor(kafka)
        assert down.exit_code == 1
        assert "node 100: unreachable" in down.output
        assert " 0 disagreements" in down.output
    finally:
        kafka.nodes[100].restart()
    eventually(lambda: not findings(kafka, partitions), "the broker to be back everywhere", within_s=60)
