"""What a reader of the data source can be told, from Spark's options to one checked object."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from quorate.backup.config import check_backup_id
from quorate.backup.objects.opening import parse_url
from quorate.backup.objects.storage import StorageLocation
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.restore.config import TimeWindow
from quorate.backup.spark.data_source.columns import COLUMN_NAMES
from quorate.client.config import ClientConfig, parse_client_config
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.security_config import SecurityConfig
from quorate.kernel.decoding import convert
from quorate.kernel.errors import QuorateError
from quorate.kernel.settings import parse_size
from quorate.records.columnar import INT64_MAX, INT64_MIN

DEFAULT_TASK_BYTES: Final = 64 * 1024 * 1024
_SMALLEST_TASK_BYTES: Final = 64 * 1024
#: Far more than a topic of any cluster has; what is named is kept in memory.
_LAST_PARTITION: Final = 1_000_000
_MAX_DIGITS: Final = 18
_CLIENT_ID: Final = "quorate-spark"

_BACKUP: Final = ("backup", "backup_id", "endpoint", "manifest", "as_of")
_SECURITY: Final = {
    "security_protocol" if field == "protocol" else field: field for field in SecurityConfig.__struct_fields__
}
#: Those of them that are true or false.
_SECURITY_FLAGS: Final = ("verify_hostname", "delegation_token", "oauth_header_urlencode")
_CLIENT: Final = ("bootstrap_servers", "rack", "request_timeout_ms", "retry_timeout_ms")
_STREAM: Final = ("fail_on_data_loss", "max_records_per_trigger")
_READING: Final = (
    "topics",
    "exclude_topics",
    "partitions",
    "start_offset",
    "end_offset",
    "start_time",
    "end_time",
    "isolation",
    "max_bytes_per_task",
    "columns",
)
OPTION_NAMES: Final = (*_BACKUP, *_CLIENT, *_SECURITY, *_READING, *_STREAM)


class BackupSource(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    location: StorageLocation  # Of the backup's own folder.
    manifest: int | None = None
    as_of_ms: int | None = None  # The newest manifest that shows this moment or an earlier one.


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    source: BackupSource | ClientConfig
    topics: TopicSelection = TopicSelection()
    partitions: frozenset[int] | None = None  # None: all.
    start_offsets: "OffsetChoice"
    end_offsets: "OffsetChoice"
    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    max_bytes_per_task: int = DEFAULT_TASK_BYTES
    columns: tuple[str, ...] = COLUMN_NAMES
    fail_on_data_loss: bool = True
    max_records_per_trigger: int | None = None

    def wants_partition(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions


class OffsetChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One offset for all partitions, or one for each that is named."""

    everywhere: int | None = None
    by_topic: dict[str, dict[int, int]] = {}
    is_latest: bool = False  # The end of each log, where a start is asked for.

    @property
    def is_default(self) -> bool:
        return self == OffsetChoice()

    def of(self, topic: str, partition: int) -> int | None:
        return self.by_topic.get(topic, {}).get(partition, self.everywhere)


def parse_options(raw: Mapping[str, str]) -> SourceOptions:
    """``QuorateError`` says in one sentence what is wrong."""
    options = {name.lower(): value.strip() for name, value in raw.items()}
    for name in options:
        if name not in OPTION_NAMES:
            near = get_close_matches(name, OPTION_NAMES, n=1)
            raise QuorateError(f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    window = TimeWindow(start=_moment(options, "start_time"), end=_moment(options, "end_time"))
    return SourceOptions(
        source=_source(options),
        topics=TopicSelection(include=_words(options, "topics") or ("*",), exclude=_words(options, "exclude_topics")),
        partitions=_partitions(options),
        start_offsets=_offsets(options, "start_offset", "earliest"),
        end_offsets=_offsets(options, "end_offset", "latest"),
        start_ms=INT64_MIN if window.start_ms is None else window.start_ms,
        end_ms=INT64_MAX if window.end_ms is None else window.end_ms,
        isolation=_isolation(options),
        max_bytes_per_task=_size(options, "max_bytes_per_task", _SMALLEST_TASK_BYTES) or DEFAULT_TASK_BYTES,
        columns=_columns(options),
        fail_on_data_loss=_flag(options, "fail_on_data_loss", default=True),
        max_records_per_trigger=_number(options, "max_records_per_trigger", 1),
    )


def _source(options: Mapping[str, str]) -> BackupSource | ClientConfig:
    of_backup = [name for name in _BACKUP if name in options]
    of_cluster = [name for name in (*_CLIENT, *_SECURITY) if name in options]
    if "backup" in options and "bootstrap_servers" in options:
        raise QuorateError("give one of the options backup and bootstrap_servers, not both")
    if "backup" in options:
        if of_cluster:
            raise QuorateError(f"option {of_cluster[0]} means nothing for a backup")
        return _backup_source(options)
    if "bootstrap_servers" not in options:
        raise QuorateError("give the option backup (a storage URL) or bootstrap_servers (host:port,…)")
    if of_backup:
        raise QuorateError(f"option {of_backup[0]} means nothing for a live cluster")
    return _client_config(options)


def _backup_source(options: Mapping[str, str]) -> BackupSource:
    if "backup_id" not in options:
        raise QuorateError("option backup_id is missing: it says which backup of the storage to read")
    check_backup_id(options["backup_id"])
    parse_url(options["backup"])
    if "manifest" in options and "as_of" in options:
        raise QuorateError("give one of the options manifest and as_of, not both")
    as_of = TimeWindow(end=_moment(options, "as_of"))
    return BackupSource(
        backup_id=options["backup_id"],
        location=StorageLocation(options["backup"], options.get("endpoint")).below(options["backup_id"]),
        manifest=_number(options, "manifest", 1),
        as_of_ms=as_of.end_ms,
    )


def _client_config(options: Mapping[str, str]) -> ClientConfig:
    security: dict[str, Any] = {key: options[name] for name, key in _SECURITY.items() if name in options}
    security |= {name: _flag(options, name, default=False) for name in _SECURITY_FLAGS if name in options}
    raw: dict[str, Any] = {name: options[name] for name in ("bootstrap_servers", "rack") if name in options}
    for name in ("request_timeout_ms", "retry_timeout_ms"):
        value = _number(options, name, 1)
        raw |= {} if value is None else {name: value}
    return parse_client_config({**raw, "security": security, "client_id": _CLIENT_ID})


def _words(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for part in options.get(name, "").split(",") if (word := part.strip()))


def _partitions(options: Mapping[str, str]) -> frozenset[int] | None:
    words = _words(options, "partitions")
    return frozenset(index for word in words for index in _span(word)) if words else None  # Each span is bounded.


def _span(word: str) -> Iterator[int]:
    first, dash, last = (part.strip() for part in word.partition("-"))
    if not _is_number(first) or (dash and not _is_number(last)):
        raise QuorateError(f"option partitions: {word!r} is neither a number nor a span such as 3-7")
    start, end = int(first), int(last or first)
    if end < start:
        raise QuorateError(f"option partitions: {word!r} ends before it starts; did you mean {end}-{start}?")
    if end > _LAST_PARTITION:
        raise QuorateError(f"option partitions: {word!r} goes beyond partition {_LAST_PARTITION}, which no topic has")
    return iter(range(start, end + 1))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _offsets(options: Mapping[str, str], name: str, default: str) -> OffsetChoice:
    """A number, the default's name, or JSON: an object of topics, each an object of partitions."""
    text = options.get(name, default)
    if text in (default, "latest"):
        return OffsetChoice(is_latest=text != default)
    if text.isdigit():
        return OffsetChoice(everywhere=int(text))
    try:
        return OffsetChoice(by_topic=convert(json.loads(text), dict[str, dict[int, int]], strict=False))
    except (ValueError, msgspec.ValidationError):
        raise QuorateError(
            f'option {name}: {text!r} is not {default}, not a number and not JSON such as {{"orders": {{"0": 42}}}}'
        ) from None


def _moment(options: Mapping[str, str], name: str) -> datetime | None:
    """ISO 8601, or milliseconds since 1970. A time without a zone is UTC."""
    text = options.get(name)
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(int(text) / 1000, UTC) if text.isdigit() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise QuorateError(
            f"option {name}: {text!r} is no time such as 2026-01-31T23:59:59Z, nor milliseconds since 1970"
        ) from None


def _isolation(options: Mapping[str, str]) -> IsolationLevel:
    text = options.get("isolation", "read_committed")
    try:
        return IsolationLevel[text.upper()]
    except KeyError:
        raise QuorateError(f"option isolation: {text!r} is not one of read_committed, read_uncommitted") from None


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    names = _words(options, "columns")
    for name in names:
        if name not in COLUMN_NAMES:
            raise QuorateError(f"option columns: {name!r} is not one of {', '.join(COLUMN_NAMES)}")
    return tuple(name for name in COLUMN_NAMES if not names or name in names)


def _number(options: Mapping[str, str], name: str, at_least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not _is_number(text) or int(text) < at_least:
        raise QuorateError(f"option {name}: {text!r} is not a number of at least {at_least}")
    return int(text)


def _size(options: Mapping[str, str], name: str, at_least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        size_bytes = parse_size(text)
    except QuorateError as error:
        raise QuorateError(f"option {name}: {error}") from None
    if size_bytes < at_least:
        raise QuorateError(f"option {name}: {text!r} is less than {at_least} bytes")
    return size_bytes


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise QuorateError(f"option {name}: {text!r} is neither true nor false")
    return text == "true"
