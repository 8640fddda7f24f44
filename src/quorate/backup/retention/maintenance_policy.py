"""How a continuous backup keeps itself small, as ``maintenance`` in ``backup.yaml`` has it."""

from typing import Final

import msgspec

from quorate.backup.retention.prune_policy import PrunePolicy

_MINUTES_PER_DAY: Final = 1440


class MaintenancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    interval_ms: int | None = 600_000  # None: there is none.
    keep_minutes: int = 10  # Every round of the last so many minutes stays,
    keep_hourly: int = 24  # then one an hour,
    keep_daily: int = 30  # and one a day.
    compact_below_bytes: int = 8 * 1024 * 1024  # Objects smaller than this are merged.

    @property
    def prune_policy(self) -> PrunePolicy:
        return PrunePolicy(
            keep_days=self.keep_minutes / _MINUTES_PER_DAY,
            keep_hourly=self.keep_hourly,
            keep_daily=self.keep_daily,
            only_rounds=True,
        )
