"""The resources that config requests name: topics, brokers and groups, and what may be asked of them."""

from collections.abc import Sequence
from enum import IntEnum

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, NodeId, TopicName
from quorate.kernel.topic_names import check_topic_name
from quorate.metadata.core.commands import AlterBrokerConfigs, AlterGroupConfigs, AlterTopicConfigs, ConfigChange
from quorate.metadata.store import MetadataStore


class ResourceType(IntEnum):
    """Kafka's codes, as far as they are served here."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def parse_resource_type(code: int) -> ResourceType:
    try:
        return ResourceType(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {code} are not supported.") from None


def parse_broker_name(name: str) -> NodeId | None:
    """A broker's id; None for the empty name, which means all brokers."""
    if name == "":
        return None
    if not name.isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    return NodeId(int(name))


async def alter_resource(
    metadata: MetadataStore,
    resource_type: int,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    replace_all: bool,
    validate_only: bool,
) -> KafkaError | None:
    """Change the configs of a resource; returns why not."""
    try:
        command = _alter_command(resource_type, name, changes, replace_all=replace_all)
    except KafkaError as error:
        return error
    (outcome,) = await metadata.submit([command], validate_only=validate_only)
    return outcome if isinstance(outcome, KafkaError) else None


def _alter_command(
    resource_type: int, name: str, changes: Sequence[ConfigChange], *, replace_all: bool
) -> AlterTopicConfigs | AlterBrokerConfigs | AlterGroupConfigs:
    kind = parse_resource_type(resource_type)
    if kind is ResourceType.GROUP:
        return AlterGroupConfigs(group_id=GroupId(name), changes=tuple(changes), replace_all=replace_all)
    if kind is ResourceType.TOPIC:
        check_topic_name(name)
        return AlterTopicConfigs(name=TopicName(name), changes=tuple(changes), replace_all=replace_all)
    return AlterBrokerConfigs(node_id=parse_broker_name(name), changes=tuple(changes), replace_all=replace_all)
