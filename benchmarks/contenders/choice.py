"""What a run of the backup's, the restore's or the data source's benchmark was asked for."""

import msgspec

from benchmarks.contenders.kafka_backup import KafkaBackup
from benchmarks.contenders.shapes import Sizes


class ContenderChoice(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]
    quick: bool
    sizes: Sizes
    kafka_backup: KafkaBackup | None = None
