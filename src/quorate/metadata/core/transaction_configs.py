"""The broker configs of transactions, with Apache Kafka's names and defaults."""

from quorate.metadata.core.config_definitions import ConfigDefinition, ConfigType, at_least

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
