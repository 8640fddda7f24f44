"""Configs of consumer groups: set within the broker's limits, kept in snapshots, and shown where they come from."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, NodeId, Offset
from quorate.metadata.core.commands import AlterGroupConfigs, ConfigChange, ConfigOperation
from quorate.metadata.core.config_changes import decide_group_configs
from quorate.metadata.core.coordinator_configs import GROUP_CONFIGS
from quorate.metadata.core.effective_configs import BrokerView, group_entries
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.snapshot import decode_image, encode_image
from quorate.protocol.codes import ConfigSource

GROUP = GroupId("readers")
VIEW = BrokerView(node_id=NodeId(7), static_configs={"group.consumer.heartbeat.interval.ms": "6000"})
SESSION = "consumer.session.timeout.ms"


def change(key: str, value: str | None) -> AlterGroupConfigs:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return AlterGroupConfigs(group_id=GROUP, changes=(ConfigChange(key=key, operation=operation, value=value),))


def changed(image: MetadataImage, key: str, value: str | None) -> MetadataImage:
    records = decide_group_configs(image, VIEW, change(key, value))
    return image.replay(records, Offset(image.version + 1))[0]


def test_config_of_a_group_is_set_shown_kept_and_taken_away() -> None:
    image = changed(MetadataImage(), SESSION, "50000")

    assert image.group_configs == {GROUP: {SESSION: "50000"}}
    assert decode_image(encode_image(image)) == image
    entries = list(group_entries(image, VIEW, GROUP, GROUP_CONFIGS[SESSION]))
    assert [(entry.value, entry.source) for entry in entries] == [
        ("50000", ConfigSource.GROUP),
        ("45000", ConfigSource.DEFAULT),
    ]
    inherited = next(group_entries(image, VIEW, GROUP, GROUP_CONFIGS["consumer.heartbeat.interval.ms"]))
    assert (inherited.value, inherited.source) == ("6000", ConfigSource.STATIC_BROKER)
    assert changed(image, SESSION, None).group_configs == {}


@pytest.mark.parametrize(
    ("key", "value"), [(SESSION, "44999"), (SESSION, "60001"), (SESSION, "soon"), ("consumer.nothing", "1")]
)
def test_values_outside_the_limits_of_the_broker_are_refused(key: str, value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        changed(MetadataImage(), key, value)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
