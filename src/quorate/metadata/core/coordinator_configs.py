"""The configs of the coordinators, consumer groups' and transactions', with Apache Kafka's names and defaults."""

from quorate.metadata.core.config_definitions import INT32_MAX, ConfigDefinition, ConfigType, at_least, one_of

CONSUMER_GROUP_CONFIGS = (
    ConfigDefinition(
        name="group.consumer.assignors",
        type=ConfigType.LIST,
        default="uniform,range",
        check=one_of("uniform", "range"),
        read_only=True,
        documentation="The assignors that members of consumer groups may ask for; the first is the default.",
    ),
    ConfigDefinition(
        name="group.consumer.heartbeat.interval.ms",
        type=ConfigType.INT,
        default="5000",
        check=at_least(1),
        read_only=True,
        documentation="How often members of consumer groups are told to heartbeat.",
    ),
    ConfigDefinition(
        name="group.consumer.max.heartbeat.interval.ms",
        type=ConfigType.INT,
        default="15000",
        check=at_least(1),
        read_only=True,
        documentation="The longest heartbeat interval that a group may be given.",
    ),
    ConfigDefinition(
        name="group.consumer.max.session.timeout.ms",
        type=ConfigType.INT,
        default="60000",
        check=at_least(1),
        read_only=True,
        documentation="The longest session timeout that a group may be given.",
    ),
    ConfigDefinition(
        name="group.consumer.max.size",
        type=ConfigType.INT,
        default=str(INT32_MAX),
        check=at_least(1),
        read_only=True,
        documentation="The most members that a consumer group may have.",
    ),
    ConfigDefinition(
        name="group.consumer.migration.policy",
        type=ConfigType.STRING,
        default="bidirectional",
        check=one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        read_only=True,
        documentation="Whether a group with members may change from the classic to the consumer protocol and back.",
    ),
    ConfigDefinition(
        name="group.consumer.min.heartbeat.interval.ms",
        type=ConfigType.INT,
        default="5000",
        check=at_least(1),
        read_only=True,
        documentation="The shortest heartbeat interval that a group may be given.",
    ),
    ConfigDefinition(
        name="group.consumer.min.session.timeout.ms",
        type=ConfigType.INT,
        default="45000",
        check=at_least(1),
        read_only=True,
        documentation="The shortest session timeout that a group may be given.",
    ),
    ConfigDefinition(
        name="group.consumer.session.timeout.ms",
        type=ConfigType.INT,
        default="45000",
        check=at_least(1),
        read_only=True,
        documentation="How long a silent member of a consumer group keeps its partitions.",
    ),
)
#: What can be set for one group, within the limits that the broker configs give.
GROUP_CONFIGS = {
    definition.name: definition
    for definition in (
        ConfigDefinition(
            name="consumer.heartbeat.interval.ms",
            type=ConfigType.INT,
            default="5000",
            check=at_least(1),
            broker_synonym="group.consumer.heartbeat.interval.ms",
            documentation="How often the members of this group are told to heartbeat.",
        ),
        ConfigDefinition(
            name="consumer.session.timeout.ms",
            type=ConfigType.INT,
            default="45000",
            check=at_least(1),
            broker_synonym="group.consumer.session.timeout.ms",
            documentation="How long a silent member of this group keeps its partitions.",
        ),
    )
}
#: The broker configs that bound each config of a group.
GROUP_CONFIG_LIMITS = {
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
}
TRANSACTION_CONFIGS = (
    ConfigDefinition(
        name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
        type=ConfigType.INT,
        default="10000",
        check=at_least(1),
        read_only=True,
        documentation="How often transactions that have outlived their timeout are looked for.",
    ),
    ConfigDefinition(
        name="transaction.max.timeout.ms",
        type=ConfigType.INT,
        default="900000",
        check=at_least(1),
        read_only=True,
        documentation="The longest timeout that a transactional producer may ask for.",
    ),
    ConfigDefinition(
        name="transaction.partition.verification.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        documentation="Whether the coordinator is asked before the first records of a transaction are written.",
    ),
    ConfigDefinition(
        name="transaction.remove.expired.transaction.cleanup.interval.ms",
        type=ConfigType.INT,
        default="3600000",
        check=at_least(1),
        read_only=True,
        documentation="How often transactional ids that nobody uses are looked for.",
    ),
    ConfigDefinition(
        name="transaction.state.log.min.isr",
        type=ConfigType.INT,
        default="2",
        check=at_least(1),
        read_only=True,
        documentation="The min.insync.replicas of __transaction_state.",
    ),
    ConfigDefinition(
        name="transaction.state.log.num.partitions",
        type=ConfigType.INT,
        default="50",
        check=at_least(1),
        read_only=True,
        documentation="The number of partitions of __transaction_state.",
    ),
    ConfigDefinition(
        name="transaction.state.log.replication.factor",
        type=ConfigType.SHORT,
        default="3",
        check=at_least(1),
        read_only=True,
        documentation="The replication factor of __transaction_state; fewer where there are fewer nodes.",
    ),
    ConfigDefinition(
        name="transaction.state.log.segment.bytes",
        type=ConfigType.INT,
        default=str(100 * 2**20),
        check=at_least(1),
        read_only=True,
        documentation="The segment.bytes of __transaction_state.",
    ),
    ConfigDefinition(
        name="transactional.id.expiration.ms",
        type=ConfigType.INT,
        default=str(7 * 24 * 60 * 60 * 1000),
        check=at_least(1),
        read_only=True,
        documentation="How long a transactional id is kept that nobody uses.",
    ),
)
