"""The settings of a restore, as ``restore.yaml`` has them. The text and the environment are handed in."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from quorate.backup.config import (
    ClusterConfig,
    SparkConfig,
    StorageConfig,
    check_backup_id,
    problems_of,
    spark_problems,
    with_login,
)
from quorate.backup.config_reading import read_config
from quorate.backup.errors import ConfigError
from quorate.backup.objects.opening import parse_url
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.client.client_properties import ClientProperties


class TimeWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends belong to it, and it is open where one is not given."""

    start: datetime | None = None
    end: datetime | None = None

    @property
    def start_ms(self) -> int | None:
        """The first millisecond that is not before the start."""
        return None if self.start is None else -(-_microseconds(self.start) // 1000)

    @property
    def end_ms(self) -> int | None:
        return None if self.end is None else _microseconds(self.end) // 1000


class RestoreSection(msgspec.Struct, frozen=True, kw_only=True):
    manifest: int | None = None  # The newest, unless one is named.
    topics: TopicSelection = TopicSelection()
    topic_mapping: dict[str, str] = {}  # From the name at the source to the name at the target.
    partitions: dict[str, list[int]] = {}  # By the source's name; all of a topic that is not named here.
    generations: dict[str, int] = {}  # The newest life of a topic, unless one is named.
    time_window: TimeWindow = TimeWindow()
    partition_counts: dict[str, int] = {}  # By the source's name: another number of partitions, records go by key.
    replication_factor: int | None = None  # The target's default, unless given.
    topic_configs: dict[str, str | None] = {}  # Win over the source's; null leaves one out.
    log_append_time: Literal["original", "new"] = "original"
    preserve_offsets: bool = False  # Records come back at the offsets that they had; the target must be Quorate.
    consumer_groups: TopicSelection | None = None  # None: groups are left alone.
    rate_limit_bytes_per_second: int | None = None  # Over all tasks.
    deadline_ms: int = 300_000  # How long one partition is tried without progress before the restore fails.


class RestoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    target: ClusterConfig
    storage: StorageConfig
    restore: RestoreSection = RestoreSection()
    spark: SparkConfig = SparkConfig()

    @property
    def location(self) -> StorageLocation:
        """The backup's own folder."""
        return self.root.below(self.backup_id)

    @property
    def root(self) -> StorageLocation:
        return StorageLocation(self.storage.url, self.storage.endpoint)


def parse_restore_config(
    text: str, environment: Mapping[str, str], file_name: str, command_config: ClientProperties | None = None
) -> RestoreConfig:
    """Read and check a ``restore.yaml``; ``ConfigError`` says in one sentence what is wrong, and where."""
    config = read_config(text, environment, file_name, RestoreConfig)
    check_backup_id(config.backup_id)
    try:
        config = msgspec.structs.replace(config, target=with_login(config.target, "target", command_config))
    except ConfigError as error:
        raise ConfigError(f"{file_name}: {error}") from None
    for key, problem in [
        *problems_of(config.target, "target"),
        *spark_problems(config.spark),
        *((f"restore.{key}", problem) for key, problem in _problems(config.restore)),
    ]:
        raise ConfigError(f"{file_name}: {key} {problem}")
    parse_url(config.storage.url)
    return config


def _problems(restore: RestoreSection) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if not restore.topics.include:
        found.append(("topics.include", "names no topic"))
    numbers: dict[str, int | None] = {
        "manifest": restore.manifest,
        "replication_factor": restore.replication_factor,
        "rate_limit_bytes_per_second": restore.rate_limit_bytes_per_second,
        "deadline_ms": restore.deadline_ms,
    }
    numbers |= {f"partition_counts.{topic}": count for topic, count in restore.partition_counts.items()}
    numbers |= {f"generations.{topic}": number for topic, number in restore.generations.items()}
    found += [
        (key, f"must be above 0 and is {value}") for key, value in numbers.items() if value is not None and value <= 0
    ]
    start_ms, end_ms = restore.time_window.start_ms, restore.time_window.end_ms
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        found.append(("time_window", "ends before it starts"))
    return found


def _microseconds(moment: datetime) -> int:
    """Since 1970, in whole numbers. A time without a zone is UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
