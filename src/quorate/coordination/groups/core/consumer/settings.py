"""Settings of consumer groups, with Kafka's names and defaults."""

from enum import StrEnum

import msgspec


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
    assignors: tuple[str, ...] = ("uniform", "range")  # The first is taken where members have no wish.
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
