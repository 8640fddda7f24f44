"""A restore's settings: what is read, what is refused, which topics they mean, which configs those get."""

import msgspec
import pytest

from quorate.backup.errors import ConfigError
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    Isolation,
    Manifest,
    Mode,
    PartitionEntry,
    RunSettings,
    TopicEntry,
)
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.restore.checks import ExistingTopic, group_refusals, replication_refusal, topic_refusals
from quorate.backup.restore.config import RestoreConfig, RestoreSection, TimeWindow, parse_restore_config
from quorate.backup.restore.ledger import settings_digest
from quorate.backup.restore.topics import change_when_restored, configs_while_restoring, final_configs, select_topics
from quorate.kernel.ids import Offset, PartitionIndex, ProducerId, TopicId, TopicName
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID
from tests.unit.backup.batches import TOPIC_ID

SMALLEST = "{backup_id: nightly, target: {bootstrap_servers: [a:1]}, storage: {url: 'file:///b'}, restore: %s}"


def parse(restore: str) -> RestoreConfig:
    return parse_restore_config(SMALLEST % restore, {}, "restore.yaml")


def topic(name: str, partitions: int = 2, generation: int = 1, **configs: str) -> TopicEntry:
    return TopicEntry(
        name=TopicName(name),
        topic_id=TopicId(TOPIC_ID),
        generation=generation,
        partition_count=partitions,
        configs=configs,
        partitions=[
            PartitionEntry(
                partition=PartitionIndex(index),
                start_offset=Offset(0),
                end_offset=Offset(0),
                captured_start_offset=Offset(0),
                captured_end_offset=Offset(0),
            )
            for index in range(partitions)
        ],
    )


def manifest(*topics: TopicEntry) -> Manifest:
    return Manifest(
        format_version=FORMAT_VERSION,
        number=3,
        backup_id="nightly",
        cluster_id="c",
        run_id="r",
        created_ms=0,
        captured_ms=0,
        settings=RunSettings(mode=Mode.SNAPSHOT, isolation=Isolation.READ_COMMITTED, compression="none"),
        topics=list(topics),
    )


def test_point_in_time_is_read_to_the_millisecond() -> None:
    window = parse("{time_window: {end: '2026-01-31T23:59:59.999Z'}}").restore.time_window

    assert (window.start_ms, window.end_ms) == (None, 1769903999999)


def test_time_without_quotes_or_zone_is_utc() -> None:
    assert parse("{time_window: {start: 1970-01-01T00:00:01}}").restore.time_window.start_ms == 1000


@pytest.mark.parametrize(
    ("restore", "sentence"),
    [
        ("{topcs: {}}", "unknown key 'restore.topcs'; did you mean 'topics'?"),
        ("{manifest: 0}", "restore.manifest must be above 0 and is 0"),
        ("{partition_counts: {a: 0}}", "restore.partition_counts.a must be above 0 and is 0"),
        ("{time_window: {start: 2026-01-02T00:00:00Z, end: 2026-01-01T00:00:00Z}}", "ends before it starts"),
    ],
)
def test_setting_that_cannot_be_meant_is_named(restore: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(restore)
    assert sentence in str(raised.value)


def test_newest_generation_is_restored_unless_one_is_named() -> None:
    held = manifest(topic("a", generation=1), topic("a", generation=2))

    (newest,) = select_topics(held, RestoreSection())
    (named,) = select_topics(held, RestoreSection(generations={"a": 1}))

    assert (newest.source.generation, named.source.generation) == (2, 1)
    with pytest.raises(ConfigError, match="has no generation 3, only 1, 2"):
        select_topics(held, RestoreSection(generations={"a": 3}))


def test_topics_are_renamed_and_partitions_chosen() -> None:
    held = manifest(topic("a", 4), topic("b"))
    section = RestoreSection(
        topics=TopicSelection(include=("a",)),
        topic_mapping={"a": "x"},
        partitions={"a": [1, 3]},
        partition_counts={"a": 4},
    )

    (selected,) = select_topics(held, section)

    assert (selected.target, selected.partition_count, selected.is_rehashed) == ("x", 4, False)
    assert [each.partition for each in selected.partitions] == [1, 3]


def test_records_that_keep_their_offsets_stay_in_their_partitions() -> None:
    held = manifest(topic("a", partitions=4))

    with pytest.raises(ConfigError, match=r"leave topic a out of restore\.partition_counts"):
        select_topics(held, RestoreSection(preserve_offsets=True, partition_counts={"a": 5}))
    assert select_topics(held, RestoreSection(preserve_offsets=True, partition_counts={"a": 4}))


def test_two_topics_of_one_name_and_unknown_names_are_refused() -> None:
    held = manifest(topic("a"), topic("b"))

    with pytest.raises(ConfigError, match="topics a and b would both be restored as b"):
        select_topics(held, RestoreSection(topic_mapping={"a": "b"}))
    with pytest.raises(ConfigError, match=r"restore\.topic_mapping names topic c, which manifest 3 does not hold"):
        select_topics(held, RestoreSection(topic_mapping={"c": "d"}))


def test_retention_and_compaction_wait_until_the_data_is_in() -> None:
    final = final_configs({"retention.ms": "5", "cleanup.policy": "compact", "segment.ms": "9"}, {"segment.ms": None})

    during = configs_while_restoring(final, "original")
    change = change_when_restored(final, "original")

    assert (during["retention.ms"], during["cleanup.policy"]) == ("-1", "delete")
    restored = {key: value for key, value in (during | change.values).items() if key not in change.delete}
    assert restored == final == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_only_the_restore_may_write_until_records_that_keep_their_offsets_are_in() -> None:
    final = final_configs({"retention.ms": "5", RESTORE_PRODUCER_ID: "3"}, {})

    during = configs_while_restoring(final, "original", ProducerId(7))
    change = change_when_restored(final, "original", keeps_offsets=True)

    assert during[RESTORE_PRODUCER_ID] == "7"
    assert RESTORE_PRODUCER_ID in change.delete
    assert final == {"retention.ms": "5"}
    assert RESTORE_PRODUCER_ID not in configs_while_restoring(final, "original")


def test_new_log_append_times_leave_the_timestamp_type_as_it_is() -> None:
    final = {"message.timestamp.type": "LogAppendTime"}

    assert configs_while_restoring(final, "new")["message.timestamp.type"] == "LogAppendTime"
    assert configs_while_restoring(final, "original")["message.timestamp.type"] == "CreateTime"


def test_refusals_say_what_to_do() -> None:
    selected = select_topics(manifest(topic("a")), RestoreSection())
    full = ExistingTopic(topic_id=TopicId(TOPIC_ID), partition_count=2, record_offsets=1)
    other = msgspec.structs.replace(full, partition_count=3, record_offsets=0)
    ready = msgspec.structs.replace(full, record_offsets=0)

    assert "is not empty: delete it" in next(topic_refusals(selected, {TopicName("a"): full}))
    assert "has 3 partitions and needs 2" in next(topic_refusals(selected, {TopicName("a"): other}))
    assert list(topic_refusals(selected, {TopicName("a"): ready})) == []
    assert "delete it" in next(topic_refusals(selected, {TopicName("a"): ready}, keep_offsets=True))
    assert "start more of them" in next(replication_refusal(3, 2))
    assert list(replication_refusal(3, 3)) == []
    assert "stop its members" in next(group_refusals(["g"]))


def test_runs_of_one_restore_have_one_digest_however_fast_they_are() -> None:
    config = parse("{}")
    faster = msgspec.structs.replace(config, restore=RestoreSection(rate_limit_bytes_per_second=5))
    other = msgspec.structs.replace(config, restore=RestoreSection(time_window=TimeWindow()))
    renamed = msgspec.structs.replace(config, restore=RestoreSection(topic_mapping={"a": "b"}))

    assert settings_digest(config, "c") == settings_digest(faster, "c") == settings_digest(other, "c")
    assert len({settings_digest(config, "c"), settings_digest(config, "d"), settings_digest(renamed, "c")}) == 3


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("{}", "restore.yaml: target.bootstrap_servers names no server"),
        ("{bootstrap_servers: [a]}", "target.bootstrap_servers holds 'a', which is not of the form host:port"),
        ("{bootstrap_servers: [a:1], security: {protocol: SASL_SSL}}", "target.security.sasl_mechanism is needed with"),
        ("{bootstrap_servers: [a:1], properties: {security.protocol: TLS}}", "target.properties: security.protocol:"),
    ],
)
def test_what_is_wrong_with_the_target_is_said_before_anything_is_done(target: str, sentence: str) -> None:
    text = SMALLEST.replace("{bootstrap_servers: [a:1]}", target) % "{}"
    with pytest.raises(ConfigError) as caught:
        parse_restore_config(text, {}, "restore.yaml")
    assert sentence in str(caught.value)
