"""The configs of a broker that tools ask for, with Apache Kafka's names and defaults.

Those that are the default of a topic config come from the topic's own definition; they and the few others that are not
read-only can be changed while a node runs.
"""

from collections.abc import Iterable

import msgspec

from quorate.metadata.core.config_definitions import (
    INT32_MAX,
    INT64_MAX,
    ConfigDefinition,
    ConfigType,
    at_least,
    between,
    find_definition,
)
from quorate.metadata.core.connection_configs import CONNECTION_CONFIGS
from quorate.metadata.core.coordinator_configs import CONSUMER_GROUP_CONFIGS, TRANSACTION_CONFIGS
from quorate.metadata.core.security_configs import SECURITY_CONFIGS, listener_definition
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS

_OWN = (
    ConfigDefinition(
        name="advertised.listeners",
        type=ConfigType.STRING,
        default="",
        read_only=True,
        documentation="The address that clients are told to connect to.",
    ),
    ConfigDefinition(
        name="auto.create.topics.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        read_only=True,
        documentation="Whether a topic that a client asks for is made when it is missing.",
    ),
    ConfigDefinition(
        name="auto.leader.rebalance.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        read_only=True,
        documentation="Whether partitions go back to their first replica when it is in sync again.",
    ),
    ConfigDefinition(
        name="auto.new.node.rebalance.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        read_only=True,
        documentation="Whether a node that joins gets its share of the replicas, and others what a removed one held.",
    ),
    ConfigDefinition(
        name="leader.imbalance.check.interval.seconds",
        type=ConfigType.LONG,
        default="5",
        check=at_least(1),
        read_only=True,
        documentation="How long after a change the balance of leaders and replicas is looked at.",
    ),
    ConfigDefinition(
        name="broker.heartbeat.interval.ms",
        type=ConfigType.INT,
        default="500",
        check=at_least(1),
        read_only=True,
        documentation="How often this node tells the quorum leader that it is alive.",
    ),
    ConfigDefinition(
        name="broker.session.timeout.ms",
        type=ConfigType.INT,
        default="1600",  # Leaves time for an election and a first write within 2 s.
        check=at_least(1),
        read_only=True,
        documentation="How long a silent node keeps its partitions; one whose process has ended loses them at once.",
    ),
    ConfigDefinition(
        name="broker.id", type=ConfigType.INT, default="-1", read_only=True, documentation="The id of this node."
    ),
    ConfigDefinition(
        name="broker.rack", type=ConfigType.STRING, default="", read_only=True, documentation="The rack of this node."
    ),
    ConfigDefinition(
        name="connections.max.idle.ms",
        type=ConfigType.LONG,
        default="600000",
        check=at_least(1),
        read_only=True,
        documentation="How long a connection may be silent before it is closed.",
    ),
    ConfigDefinition(
        name="controller.quota.window.num",
        type=ConfigType.INT,
        default="11",
        check=at_least(1),
        read_only=True,
        documentation="The number of samples whose worth of partitions may be created and deleted at once.",
    ),
    ConfigDefinition(
        name="controller.quota.window.size.seconds",
        type=ConfigType.INT,
        default="1",
        check=at_least(1),
        read_only=True,
        documentation="The length of one sample of controller_mutation_rate.",
    ),
    ConfigDefinition(
        name="default.replication.factor",
        type=ConfigType.INT,
        default="1",
        check=at_least(1),
        read_only=True,
        documentation="The replication factor of topics that are made without naming one.",
    ),
    ConfigDefinition(
        name="delete.topic.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        read_only=True,
        documentation="Whether topics can be deleted.",
    ),
    ConfigDefinition(
        name="log.disk.reserve.bytes",
        type=ConfigType.LONG,
        default=str(64 * 2**20),
        check=between(0, INT64_MAX),
        documentation=(
            "Free space of the volume below which this node takes no records, so that the metadata log has room. A "
            "quarter of it, 64 MiB at most, is held back as a file."
        ),
    ),
    ConfigDefinition(
        name="log.scrub.bytes.per.second",
        type=ConfigType.LONG,
        default=str(16 * 2**20),
        check=between(0, INT64_MAX),
        documentation=(
            "How fast this node reads its disk in the background, to find and repair damage. 0 stops it; what was "
            "written before the process started is checked before it is read all the same."
        ),
    ),
    ConfigDefinition(
        name="log.scrub.interval.ms",
        type=ConfigType.LONG,
        default="86400000",
        check=at_least(1),
        documentation="How often all of it is read, from the start of one pass to that of the next.",
    ),
    ConfigDefinition(
        name="fetch.max.bytes",
        type=ConfigType.INT,
        default=str(55 * 2**20),
        check=at_least(1024),
        read_only=True,
        documentation="The most bytes that one fetch is answered with.",
    ),
    ConfigDefinition(
        name="group.initial.rebalance.delay.ms",
        type=ConfigType.INT,
        default="3000",
        check=at_least(0),
        read_only=True,
        documentation="How long an empty group waits for more members before its first rebalance.",
    ),
    ConfigDefinition(
        name="group.max.session.timeout.ms",
        type=ConfigType.INT,
        default="1800000",
        check=at_least(1),
        read_only=True,
        documentation="The longest session timeout that a group member may ask for.",
    ),
    ConfigDefinition(
        name="group.max.size",
        type=ConfigType.INT,
        default=str(INT32_MAX),
        check=at_least(1),
        read_only=True,
        documentation="The most members that a group may have.",
    ),
    ConfigDefinition(
        name="group.min.session.timeout.ms",
        type=ConfigType.INT,
        default="6000",
        check=at_least(1),
        read_only=True,
        documentation="The shortest session timeout that a group member may ask for.",
    ),
    ConfigDefinition(
        name="listeners",
        type=ConfigType.STRING,
        default="",
        read_only=True,
        documentation="The address that this node listens on.",
    ),
    ConfigDefinition(
        name="log.cleaner.backoff.ms",
        type=ConfigType.LONG,
        default="15000",
        check=at_least(1),
        read_only=True,
        documentation="How often logs are looked at for compaction.",
    ),
    ConfigDefinition(
        name="log.dirs",
        type=ConfigType.STRING,
        default="",
        read_only=True,
        documentation="The folder that holds the data of this node.",
    ),
    ConfigDefinition(
        name="log.retention.check.interval.ms",
        type=ConfigType.LONG,
        default="300000",
        check=at_least(1),
        read_only=True,
        documentation="How often logs are looked at for segments to delete.",
    ),
    ConfigDefinition(
        name="max.incremental.fetch.session.cache.slots",
        type=ConfigType.INT,
        default="1000",
        check=at_least(0),
        read_only=True,
        documentation="How many fetch sessions are kept.",
    ),
    ConfigDefinition(
        name="follower.replication.throttled.rate",
        type=ConfigType.LONG,
        default=str(INT64_MAX),
        check=at_least(0),
        documentation="Bytes a second that replicas of throttled topics on this broker take while they catch up.",
    ),
    ConfigDefinition(
        name="leader.replication.throttled.rate",
        type=ConfigType.LONG,
        default=str(INT64_MAX),
        check=at_least(0),
        documentation="Bytes a second that this broker gives to replicas of throttled topics that catch up.",
    ),
    ConfigDefinition(
        name="replica.alter.log.dirs.io.max.bytes.per.second",
        type=ConfigType.LONG,
        default=str(INT64_MAX),
        check=at_least(0),
        documentation="Kept for tools that set and clear it; a node has one folder, and moves nothing between several.",
    ),
    ConfigDefinition(
        name="node.id", type=ConfigType.INT, default="-1", read_only=True, documentation="The id of this node."
    ),
    ConfigDefinition(
        name="num.partitions",
        type=ConfigType.INT,
        default="1",
        check=between(1, 10_000),
        read_only=True,
        documentation="The number of partitions of topics that are made without naming one.",
    ),
    ConfigDefinition(
        name="offset.metadata.max.bytes",
        type=ConfigType.INT,
        default="4096",
        check=at_least(0),
        read_only=True,
        documentation="The longest metadata text that may go with a committed offset.",
    ),
    ConfigDefinition(
        name="offsets.retention.check.interval.ms",
        type=ConfigType.LONG,
        default="600000",
        check=at_least(1),
        read_only=True,
        documentation="How often committed offsets are looked at for expiry.",
    ),
    ConfigDefinition(
        name="offsets.retention.minutes",
        type=ConfigType.INT,
        default="10080",
        check=at_least(1),
        read_only=True,
        documentation="How long the offsets of a group without members are kept.",
    ),
    ConfigDefinition(
        name="offsets.topic.num.partitions",
        type=ConfigType.INT,
        default="50",
        check=at_least(1),
        read_only=True,
        documentation="The number of partitions of __consumer_offsets.",
    ),
    ConfigDefinition(
        name="offsets.topic.replication.factor",
        type=ConfigType.SHORT,
        default="3",
        check=at_least(1),
        read_only=True,
        documentation="The replication factor of __consumer_offsets; fewer where there are fewer nodes.",
    ),
    ConfigDefinition(
        name="process.roles",
        type=ConfigType.LIST,
        default="broker,controller",
        read_only=True,
        documentation="The parts that this node plays.",
    ),
    ConfigDefinition(
        name="producer.id.expiration.ms",
        type=ConfigType.INT,
        default="86400000",
        check=at_least(1),
        read_only=True,
        documentation="How long the state of an idle idempotent producer is kept.",
    ),
    ConfigDefinition(
        name="queued.max.request.bytes",
        type=ConfigType.LONG,
        default=str(32 * 2**20),
        check=at_least(-1),
        read_only=True,
        documentation=(
            "What connections may hold together of requests that came in part or have to wait; then reading stops, but "
            "for one request. -1 is no limit."
        ),
    ),
    ConfigDefinition(
        name="quota.window.num",
        type=ConfigType.INT,
        default="11",
        check=at_least(1),
        read_only=True,
        documentation="The number of samples over which the rates of client quotas are measured.",
    ),
    ConfigDefinition(
        name="quota.window.size.seconds",
        type=ConfigType.INT,
        default="1",
        check=at_least(1),
        read_only=True,
        documentation="The length of one sample of a client quota's rate.",
    ),
    ConfigDefinition(
        name="replica.lag.time.max.ms",
        type=ConfigType.LONG,
        default="10000",
        check=at_least(1),
        read_only=True,
        documentation="How long a replica may be behind its leader before it counts as out of sync.",
    ),
    ConfigDefinition(
        name="replica.fetch.max.bytes",
        type=ConfigType.INT,
        default=str(2**20),
        check=at_least(0),
        read_only=True,
        documentation="The most bytes of one partition that a follower fetches at once.",
    ),
    ConfigDefinition(
        name="socket.request.max.bytes",
        type=ConfigType.INT,
        default=str(100 * 2**20),
        check=at_least(1024),
        read_only=True,
        documentation="The largest request that is accepted.",
    ),
    ConfigDefinition(
        name="socket.request.timeout.ms",
        type=ConfigType.INT,
        default="30000",
        check=at_least(1),
        read_only=True,
        documentation=(
            "How long a request may take from its first byte to its last, and a second more for each 16 KiB that have "
            "come; a tenth while others wait for memory. Then its connection ends."
        ),
    ),
    ConfigDefinition(
        name="socket.send.buffer.bytes",
        type=ConfigType.INT,
        default="262144",
        check=at_least(-1),
        read_only=True,
        documentation="The send buffer of a client's socket; -1 leaves it to the operating system.",
    ),
)

_TOPIC_DEFAULTS = tuple(
    msgspec.structs.replace(topic_config, name=topic_config.broker_synonym, broker_synonym=None)
    for topic_config in TOPIC_CONFIGS.values()
    if topic_config.broker_synonym is not None
)

BROKER_CONFIGS: dict[str, ConfigDefinition] = {
    definition.name: definition
    for definition in sorted(
        (
            *_OWN,
            *CONNECTION_CONFIGS,
            *TRANSACTION_CONFIGS,
            *CONSUMER_GROUP_CONFIGS,
            *SECURITY_CONFIGS,
            *_TOPIC_DEFAULTS,
        ),
        key=lambda d: d.name,
    )
}


def find_broker_definition(name: str) -> ConfigDefinition:
    """Also of a config for one listener, ``listener.name.<listener>.<config>``; INVALID_CONFIG where there is none."""
    return listener_definition(name) or find_definition(BROKER_CONFIGS, name)


def broker_definitions(names: Iterable[str]) -> dict[str, ConfigDefinition]:
    """All, and those of the names that are configs for one listener."""
    listeners = {name: found for name in sorted(set(names)) if (found := listener_definition(name)) is not None}
    return {**BROKER_CONFIGS, **listeners}
