"""Configs: how they are read, changed, and which value is in force."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, TopicName
from quorate.metadata.core.broker_configs import BROKER_CONFIGS
from quorate.metadata.core.commands import (
    AlterBrokerConfigs,
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
)
from quorate.metadata.core.config_definitions import ConfigType, find_definition
from quorate.metadata.core.effective_configs import (
    ConfigEntry,
    shown_topic_configs,
    topic_entries,
    topic_value,
    topic_values,
)
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID, TOPIC_CONFIGS
from quorate.protocol.codes import ConfigSource
from tests.unit.metadata.core.cluster import Cluster

ORDERS = TopicName("orders")


def set_to(key: str, value: str) -> ConfigChange:
    return ConfigChange(key=key, operation=ConfigOperation.SET, value=value)


def cluster_with_topic(**static_configs: str) -> Cluster:
    cluster = Cluster((7, 100, 4001), **static_configs)
    cluster.do(CreateTopic(name="orders", partition_count=1, replication_factor=1))
    return cluster


def entries(cluster: Cluster, name: str) -> list[ConfigEntry]:
    overrides = cluster.image.topics[ORDERS].configs
    return list(topic_entries(cluster.image, cluster.view, overrides, TOPIC_CONFIGS[name]))


@pytest.mark.parametrize("definitions", [TOPIC_CONFIGS, BROKER_CONFIGS], ids=["topic", "broker"])
def test_every_default_obeys_its_own_rule(definitions: dict[str, object]) -> None:
    for name in definitions:
        definition = (TOPIC_CONFIGS if definitions is TOPIC_CONFIGS else BROKER_CONFIGS)[name]
        assert definition.name == name
        definition.parse(definition.default)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 86400000 ", 86_400_000),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
    ],
)
def test_a_config_is_read_by_its_type(name: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("retention.ms", ""),
        ("segment.bytes", "10"),
        ("max.message.bytes", str(2**31)),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,burn"),
        ("min.insync.replicas", "0"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(KafkaError, match=name) as caught:
        TOPIC_CONFIGS[name].parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_the_nearest_place_wins_and_the_others_are_its_synonyms() -> None:
    cluster = cluster_with_topic(log_retention_ms="4")
    assert entries(cluster, "retention.ms")[0].source is ConfigSource.STATIC_BROKER

    cluster.do(AlterBrokerConfigs(node_id=None, changes=(set_to("log.retention.ms", "3"),)))
    cluster.do(AlterBrokerConfigs(node_id=NodeId(7), changes=(set_to("log.retention.ms", "2"),)))
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(set_to("retention.ms", "1"),)))

    assert entries(cluster, "retention.ms") == [
        ConfigEntry(name="retention.ms", value="1", source=ConfigSource.DYNAMIC_TOPIC),
        ConfigEntry(name="log.retention.ms", value="2", source=ConfigSource.DYNAMIC_BROKER),
        ConfigEntry(name="log.retention.ms", value="3", source=ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigEntry(name="log.retention.ms", value="4", source=ConfigSource.STATIC_BROKER),
        ConfigEntry(name="log.retention.ms", value="604800000", source=ConfigSource.DEFAULT),
    ]
    assert topic_values(cluster.image, cluster.view, ORDERS)["retention.ms"] == 1


def test_all_values_of_a_topic_are_those_that_each_has() -> None:
    cluster = cluster_with_topic(log_retention_ms="4", message_max_bytes="2000", log_segment_bytes="5000000")
    cluster.do(AlterBrokerConfigs(node_id=None, changes=(set_to("message.max.bytes", "3000"),)))
    cluster.do(AlterBrokerConfigs(node_id=NodeId(7), changes=(set_to("min.insync.replicas", "2"),)))
    cluster.do(AlterBrokerConfigs(node_id=NodeId(100), changes=(set_to("log.segment.bytes", "7000000"),)))
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(set_to("cleanup.policy", "compact"),)))
    for topic in (ORDERS, TopicName("unknown")):
        values = topic_values(cluster.image, cluster.view, topic)
        assert values == {name: topic_value(cluster.image, cluster.view, topic, name) for name in TOPIC_CONFIGS}
        assert list(values) == list(TOPIC_CONFIGS)


def test_lists_grow_and_shrink_from_the_value_in_force() -> None:
    cluster = cluster_with_topic()
    append = ConfigChange(key="cleanup.policy", operation=ConfigOperation.APPEND, value="compact")
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(append,)))
    assert cluster.image.topics[ORDERS].configs == {"cleanup.policy": "delete,compact"}
    assert cluster.delta.reconfigured_topics == (ORDERS,)

    subtract = ConfigChange(key="cleanup.policy", operation=ConfigOperation.SUBTRACT, value="delete")
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(subtract,)))
    assert cluster.image.topics[ORDERS].configs == {"cleanup.policy": "compact"}

    delete = ConfigChange(key="cleanup.policy", operation=ConfigOperation.DELETE)
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(delete,)))
    assert cluster.image.topics[ORDERS].configs == {}


def test_replacing_all_takes_away_what_is_not_named() -> None:
    cluster = cluster_with_topic()
    changes = (set_to("retention.ms", "1"), set_to("segment.ms", "2"))
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=changes))
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(set_to("segment.ms", "3"),), replace_all=True))
    assert cluster.image.topics[ORDERS].configs == {"segment.ms": "3"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (set_to("nonsense", "1"), ErrorCode.INVALID_CONFIG),
        (set_to("retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        (ConfigChange(key="retention.ms", operation=ConfigOperation.SET), ErrorCode.INVALID_REQUEST),
        (ConfigChange(key="retention.ms", operation=ConfigOperation.APPEND, value="1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_bad_change_changes_nothing(change: ConfigChange, code: ErrorCode) -> None:
    cluster = cluster_with_topic()
    with pytest.raises(KafkaError) as caught:
        cluster.do(AlterTopicConfigs(name=ORDERS, changes=(set_to("segment.ms", "1"), change)))
    assert caught.value.code is code
    assert cluster.image.topics[ORDERS].configs == {}


def test_state_of_a_topic_is_given_at_its_creation_and_only_taken_away_later() -> None:
    cluster = cluster_with_topic()
    given = set_to(RESTORE_PRODUCER_ID, "7")
    with pytest.raises(KafkaError, match="when it is created") as caught:
        cluster.do(AlterTopicConfigs(name=ORDERS, changes=(given,)))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    cluster.do(CreateTopic(name="back", partition_count=1, replication_factor=1, configs={RESTORE_PRODUCER_ID: "7"}))
    back = TopicName("back")

    cluster.do(AlterTopicConfigs(name=back, changes=(given,)))
    assert cluster.image.topics[back].configs == {RESTORE_PRODUCER_ID: "7"}
    with pytest.raises(KafkaError):
        cluster.do(AlterTopicConfigs(name=back, changes=(set_to(RESTORE_PRODUCER_ID, "8"),)))

    delete = ConfigChange(key=RESTORE_PRODUCER_ID, operation=ConfigOperation.DELETE)
    cluster.do(AlterTopicConfigs(name=back, changes=(delete,)))
    assert cluster.image.topics[back].configs == {}


def test_state_of_a_topic_is_shown_only_where_it_is_given() -> None:
    assert RESTORE_PRODUCER_ID not in {each.name for each in shown_topic_configs({})}
    assert RESTORE_PRODUCER_ID in {each.name for each in shown_topic_configs({RESTORE_PRODUCER_ID: "7"})}


def test_read_only_broker_configs_cannot_be_changed_while_it_runs() -> None:
    with pytest.raises(KafkaError, match="read-only"):
        Cluster().do(AlterBrokerConfigs(node_id=NodeId(7), changes=(set_to("log.dirs", "/elsewhere"),)))


def test_configs_of_an_unknown_topic_or_broker_are_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        Cluster().do(AlterTopicConfigs(name=ORDERS, changes=()))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as caught:
        Cluster().do(AlterBrokerConfigs(node_id=NodeId(8), changes=()))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_deletion_of_an_unknown_config_is_passed_over() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    known = ConfigChange(key="retention.ms", operation=ConfigOperation.SET, value="5")
    unknown = ConfigChange(key="remote.log.copy.disable", operation=ConfigOperation.DELETE)

    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(unknown, known)))
    cluster.do(AlterBrokerConfigs(node_id=None, changes=(unknown,)))

    assert cluster.image.topics[ORDERS].configs == {"retention.ms": "5"}
    assert cluster.image.broker_configs == {}


def test_an_unknown_name_far_from_all_others_gets_no_false_hint() -> None:
    with pytest.raises(KafkaError) as caught:
        find_definition(TOPIC_CONFIGS, "zzzzzz")
    assert "did you mean" not in str(caught.value)


def test_defaults_of_topics_are_broker_configs_of_the_same_type() -> None:
    for definition in TOPIC_CONFIGS.values():
        if definition.broker_synonym is not None:
            synonym = BROKER_CONFIGS[definition.broker_synonym]
            assert (synonym.type, synonym.default) == (definition.type, definition.default)
            assert synonym.type in ConfigType
