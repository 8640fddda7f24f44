"""Restores that keep offsets, into a secured cluster, by a user with just the rights that docs/security.md names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quorate.client.admin.topics import NewTopic
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition
from tests.backup_commands import Backups, consume, produce
from tests.peers.secured_cluster import SecuredCluster
from tests.peers.secured_users import add_users, allow, group, password_of, the_cluster, topic, topics_from
from tests.restore_commands import Restores, client_of
from tests.spark_session import InThisProcess, run_in_process

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(300)

TOPIC, RESTORED = "orders", "restored-orders"
RECORDS, DELETED = 300, 100


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(
        tmp_path_factory.mktemp("cluster"), node_ids=(7,), configs={"min.insync.replicas": 1}
    ) as running:
        rights = {
            "backup": [topic("*", "Read", "DescribeConfigs"), group("*", "Describe")],
            "restore": [
                topics_from("restored-", "Create", "Read", "Write", "DescribeConfigs", "AlterConfigs"),
                group("*", "Read"),
                the_cluster("DescribeConfigs"),
            ],
        }
        add_users(running, rights)
        with client_of(running.bootstrap) as administrator:
            administrator.topics.create([NewTopic(name=TopicName(TOPIC), partitions=1, replication_factor=1)])
            produce(running.bootstrap, TOPIC, RECORDS)
            start = {TopicPartition(TopicName(TOPIC), PartitionIndex(0)): Offset(DELETED)}
            administrator.topics.delete_records(start)
        yield running


def security_of(cluster: SecuredCluster, name: str) -> dict[str, str]:
    return {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": name,
        "password": password_of(name),
        "ca_location": str(cluster.ca),
    }


def test_offsets_are_kept_by_a_user_who_may_delete_records_too(cluster: SecuredCluster, tmp_path: Path) -> None:
    backups = Backups(tmp_path, cluster.secured)
    source = {
        "bootstrap_servers": [cluster.secured],
        "topics": {"include": [TOPIC]},
        "security": security_of(cluster, "backup"),
    }
    assert run_in_process(backups, backups.write_config(source=source), InThisProcess) is not None
    restores = Restores(backups, cluster.secured, security=security_of(cluster, "restore"))
    settings: dict[str, Any] = {"preserve_offsets": True, "topic_mapping": {TOPIC: RESTORED}, "replication_factor": 1}

    with pytest.raises(QuorateError) as refused:
        restores.run_in_process(**settings)
    assert RESTORED in str(refused.value)
    assert password_of("restore") not in str(refused.value)

    # Which it may make up for: the records are there, and the same restore goes on.
    allow(cluster, "restore", topics_from("restored-", "Delete"))
    restores.run_in_process(**settings)
    assert consume(cluster.bootstrap, RESTORED, 0) == consume(cluster.bootstrap, TOPIC, 0)
    assert len(consume(cluster.bootstrap, RESTORED, 0)) == RECORDS - DELETED
