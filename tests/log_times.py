"""Looks times up in a log as a node does, all in one thread."""

from quorate.storage.log import PartitionLog
from quorate.storage.timestamps import TimestampedOffset


def offset_for_timestamp(log: PartitionLog, timestamp_ms: int) -> TimestampedOffset | None:
    for probe in log.probes_for_timestamp(timestamp_ms):
        while probe is not None and not probe.is_over:
            found = probe.step()
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(log: PartitionLog) -> TimestampedOffset | None:
    highest = max(log.highest_timestamps())
    return None if highest == -1 else offset_for_timestamp(log, highest)
