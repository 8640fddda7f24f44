"""Settings of the group coordinator, with Kafka's names and defaults."""

from enum import StrEnum

import msgspec

from quorate.coordination.groups.core.consumer.assignment import ASSIGNORS


class MigrationPolicy(StrEnum):
    """Which way a group with members may change its protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_group_size: int = 2**31 - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)  # The first is taken where members have no wish.
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    # How long the first rebalance of an empty group waits for more members after each one that joined.
    initial_rebalance_delay_ms: int = 3_000
    max_group_size: int = 2**31 - 1
    # A member that has not got its first generation cannot heartbeat; its JoinGroup is given up after this time.
    new_member_join_timeout_ms: int = 300_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    offsets_retention_check_interval_ms: int = 600_000
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
