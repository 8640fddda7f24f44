"""The settings of a backup, as ``backup.yaml`` has them. The text and the environment are handed in."""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from quorate.backup.config_reading import read_config
from quorate.backup.errors import ConfigError
from quorate.backup.manifests.manifest import Isolation, Mode, RunSettings
from quorate.backup.objects.names import is_safe_segment
from quorate.backup.objects.opening import parse_url
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.retention.prune_policy import MaintenancePolicy
from quorate.backup.segments.layout import FrameCodec
from quorate.client.client_properties import ClientProperties, parse_client_properties
from quorate.client.security_config import SecurityConfig
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import parse_duration_s

_SMALLEST_SIZE_BYTES = 1024 * 1024  # Below it there would be more objects than sense.
_LONGEST_KEPT_S = 24 * 3600


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap_servers: tuple[str, ...] = ()
    metadata_refresh_interval_ms: int = 30_000
    request_timeout_ms: int = 30_000
    #: How to log in, in the names of this project; or in Kafka's, as ``client.properties`` has them.
    security: SecurityConfig = SecurityConfig()
    properties: dict[str, str] = {}


class SourceConfig(ClusterConfig, frozen=True, kw_only=True):
    topics: TopicSelection = TopicSelection()
    rack: str | None = None  # Fetch from the nearest replica, where the cluster offers one.


class StorageConfig(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    endpoint: str | None = None


class BackupSection(msgspec.Struct, frozen=True, kw_only=True):
    mode: Mode = Mode.SNAPSHOT
    isolation: Isolation = Isolation.READ_COMMITTED
    compression: Literal["none", "lz4", "zstd"] = "zstd"
    segment_max_bytes: int = 128 * 1024 * 1024
    segment_max_age_ms: int | None = None
    consumer_groups: bool = True
    allow_empty: bool = False  # A run that selects no topic is an error, unless this says that it is meant.
    rate_limit_bytes_per_second: int | None = None  # Over all tasks.
    range_bytes: int = 128 * 1024 * 1024
    continuous_interval_ms: int = 1_000  # From the end of one round to the start of the next.
    deadline_ms: int = 300_000  # How long one partition is tried before it counts as failed.


class SparkConfig(msgspec.Struct, frozen=True, kw_only=True):
    master: str = "local[*]"
    remote: str | None = None
    conf: dict[str, str] = {}
    #: For how long after the last command a Spark on this machine stays for the next ones; none stays unless given.
    keep_warm: str | bool | None = None  # YAML reads off as False.


class BackupConfig(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    source: SourceConfig
    storage: StorageConfig
    backup: BackupSection = BackupSection()
    maintenance: MaintenancePolicy = MaintenancePolicy()
    spark: SparkConfig = SparkConfig()

    @property
    def location(self) -> StorageLocation:
        """The backup's own folder."""
        return StorageLocation(self.storage.url, self.storage.endpoint).below(self.backup_id)

    @property
    def codec(self) -> FrameCodec:
        return FrameCodec[self.backup.compression.upper()]

    @property
    def run_settings(self) -> RunSettings:
        return RunSettings(
            mode=self.backup.mode,
            isolation=self.backup.isolation,
            compression=self.backup.compression,
            include=list(self.source.topics.include),
            exclude=list(self.source.topics.exclude),
        )


def parse_backup_config(
    text: str, environment: Mapping[str, str], file_name: str, command_config: ClientProperties | None = None
) -> BackupConfig:
    """Read and check a ``backup.yaml``; ``ConfigError`` says in one sentence what is wrong, and where."""
    config = read_config(text, environment, file_name, BackupConfig)
    try:
        config = msgspec.structs.replace(config, source=with_login(config.source, "source", command_config))
    except ConfigError as error:
        raise ConfigError(f"{file_name}: {error}") from None
    for key, problem in _problems(config):
        raise ConfigError(f"{file_name}: {key} {problem}")
    parse_url(config.storage.url)
    return config


Cluster = TypeVar("Cluster", bound=ClusterConfig)


def with_login(cluster: Cluster, place: str, command_config: ClientProperties | None) -> Cluster:
    """The same with the security of ``properties``, or of a file that was named on the command line."""
    given = {"security": cluster.security != SecurityConfig(), "properties": bool(cluster.properties)}
    given["--command-config"] = command_config is not None
    named = [name if name.startswith("-") else f"{place}.{name}" for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} both say how to log in: leave one of them out")
    found = command_config
    if cluster.properties:
        try:
            found = parse_client_properties(cluster.properties)
        except QuorateError as error:
            raise ConfigError(f"{place}.properties: {error}") from None
    if found is None:
        return cluster
    servers = tuple(server.strip() for server in (found.bootstrap_servers or "").split(",") if server.strip())
    return msgspec.structs.replace(
        cluster,
        bootstrap_servers=cluster.bootstrap_servers or servers,
        security=found.security,
        properties={},
    )


def problems_of(cluster: ClusterConfig, place: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if not cluster.bootstrap_servers:
        found.append((f"{place}.bootstrap_servers", "names no server"))
    found += [
        (f"{place}.bootstrap_servers", f"holds {server!r}, which is not of the form host:port")
        for server in cluster.bootstrap_servers
        if not _is_address(server)
    ]
    return found + [(f"{place}.security.{key}", problem) for key, problem in cluster.security.problems()]


def parse_keep_warm_s(given: str | bool | None) -> int | None:
    """In seconds; None where no Spark is to stay."""
    text = str(given or "off")
    if text.strip().lower() in ("off", "0"):
        return None
    seconds = parse_duration_s(text)
    if seconds > _LONGEST_KEPT_S:
        raise ConfigError(f"{text!r} is longer than a day")
    return seconds or None


def spark_problems(spark: SparkConfig) -> list[tuple[str, str]]:
    try:
        parse_keep_warm_s(spark.keep_warm)
    except QuorateError as error:
        return [("spark.keep_warm:", str(error))]
    return []


def check_backup_id(backup_id: str) -> None:
    if not is_safe_segment(backup_id):
        raise ConfigError(f"backup_id {backup_id!r} may hold only letters, digits, '.', '_' and '-'")


def _problems(config: BackupConfig) -> list[tuple[str, str]]:
    source, backup = config.source, config.backup
    found: list[tuple[str, str]] = []
    if not is_safe_segment(config.backup_id):
        found.append(("backup_id", f"{config.backup_id!r} may hold only letters, digits, '.', '_' and '-'"))
    found += problems_of(source, "source") + spark_problems(config.spark)
    if not source.topics.include:
        found.append(("source.topics.include", "names no topic"))
    for key, value in _positive_numbers(config):
        if value <= 0:
            found.append((key, f"must be above 0 and is {value}"))
    found += [
        (f"backup.{key}", f"must be at least {_SMALLEST_SIZE_BYTES}")
        for key in ("segment_max_bytes", "range_bytes")
        if getattr(backup, key) < _SMALLEST_SIZE_BYTES
    ]
    found += [
        (f"maintenance.{key}", "must not be below 0")
        for key in ("keep_minutes", "keep_hourly", "keep_daily")
        if getattr(config.maintenance, key) < 0
    ]
    return found


def _positive_numbers(config: BackupConfig) -> list[tuple[str, int]]:
    source, backup = config.source, config.backup
    numbers = {
        "source.metadata_refresh_interval_ms": source.metadata_refresh_interval_ms,
        "source.request_timeout_ms": source.request_timeout_ms,
        "backup.segment_max_age_ms": backup.segment_max_age_ms,
        "backup.rate_limit_bytes_per_second": backup.rate_limit_bytes_per_second,
        "backup.continuous_interval_ms": backup.continuous_interval_ms,
        "backup.deadline_ms": backup.deadline_ms,
        "maintenance.interval_ms": config.maintenance.interval_ms,
        "maintenance.compact_below_bytes": config.maintenance.compact_below_bytes,
    }
    return [(key, value) for key, value in numbers.items() if value is not None]


def _is_address(server: str) -> bool:
    host, _, port = server.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536
