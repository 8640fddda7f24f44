"""What a restore says of the target's retention before and after it has written."""

from typing import Any

import msgspec
import pytest

from quorate.backup.manifests.manifest import Manifest
from quorate.backup.restore.checks import broker_defaults, retention_warnings
from quorate.backup.restore.plan import RestorePlan, SourceShare, TargetPartition, TargetTopic
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName
from tests.unit.backup.backup_runs import BACKUP_ID
from tests.unit.backup.batches import PARTITION, TOPIC, TOPIC_ID
from tests.unit.backup.retained_backups import RetainedBackup

HOUR_MS = 3_600_000


def backed_up() -> Manifest:
    """Six records at 1, 2, … seconds."""
    backup = RetainedBackup()
    backup.grow(2)
    return backup.manifests()[2]


def plan_of(configs: dict[str, str], **changes: Any) -> RestorePlan:
    source = SourceShare(partition=PARTITION, segment_counts=[3, 3])
    topic = TargetTopic(
        source=TOPIC,
        source_topic_id=TOPIC_ID,
        generation=1,
        name=TopicName("back"),
        partition_count=1,
        is_rehashed=False,
        max_batch_bytes=1000,
        configs=configs,
        batch_bytes=5_000,
        lost_offsets=0,
        missing_partitions=0,
        unfinished_transactions=0,
        partitions=[TargetPartition(partition=PartitionIndex(0), sources=[source])],
    )
    plan = RestorePlan(
        backup_id=BACKUP_ID,
        manifest_number=2,
        target_cluster_id="target",
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        start_ms=None,
        end_ms=None,
        log_append_time="original",
        replication_factor=None,
        map_id="map",
        topics=[topic],
    )
    return msgspec.structs.replace(plan, **changes)


@pytest.mark.parametrize(
    ("configs", "defaults", "expected"),
    [
        (
            {"retention.ms": str(HOUR_MS)},
            {},
            "for 60 minutes (retention.ms 3600000), and at least 6 of those",
        ),
        ({}, {"retention.ms": str(48 * HOUR_MS)}, "keeps records for 2 days"),
        ({"retention.bytes": "4999", "retention.ms": "-1"}, {}, "keeps 4,999 bytes of a partition (retention.bytes)"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1"}, {}, "keeps records for"),
    ],
    ids=str,
)
def test_a_restore_of_what_the_target_will_delete_is_told(
    configs: dict[str, str], defaults: dict[str, str], expected: str
) -> None:
    [warning] = retention_warnings(plan_of(configs), backed_up(), defaults, now_ms=100 * 24 * HOUR_MS)

    assert warning.startswith("topic back ")
    assert expected in warning
    assert "keeps them)" in warning


@pytest.mark.parametrize(
    ("configs", "changes", "now_ms"),
    [
        ({}, {}, 100 * HOUR_MS),
        ({"retention.ms": "-1", "retention.bytes": "-1"}, {}, 100 * HOUR_MS),
        ({"retention.ms": str(HOUR_MS)}, {}, HOUR_MS // 2),
        ({"retention.ms": "1", "cleanup.policy": "compact"}, {}, 100 * HOUR_MS),
        ({"retention.bytes": "5000"}, {}, 100 * HOUR_MS),
        (
            {"retention.ms": str(HOUR_MS), "message.timestamp.type": "LogAppendTime"},
            {"log_append_time": "new"},
            100 * HOUR_MS,
        ),
        ({"retention.ms": str(HOUR_MS)}, {"start_ms": 99 * HOUR_MS}, 100 * HOUR_MS),
    ],
    ids=str,
)
def test_what_stays_is_not_warned_of(configs: dict[str, str], changes: dict[str, Any], now_ms: int) -> None:
    defaults = {"retention.ms": "-1"}
    assert retention_warnings(plan_of(configs, **changes), backed_up(), defaults, now_ms=now_ms) == []


def test_a_brokers_default_is_its_finest_unit() -> None:
    hours = {"log.retention.hours": "168", "log.retention.ms": None, "log.cleanup.policy": "delete"}
    assert broker_defaults(hours)["retention.ms"] == str(168 * HOUR_MS)
    assert broker_defaults(hours | {"log.retention.ms": "5"})["retention.ms"] == "5"
    assert broker_defaults({"log.retention.minutes": "2"}) == {"retention.ms": "120000"}
    assert broker_defaults({}) == {}
