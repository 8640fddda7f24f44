"""Writes what the data source reads as a table of Parquet files, with Spark's own writer. Does I/O.

Spark's committer makes the table appear: tasks write under temporary names, and the file ``_SUCCESS`` comes last. What
an export that was killed left behind has no such file, and the next one begins anew over it.
"""

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from quorate.backup.spark.session.job import QueryWatcher, SparkQueries
from quorate.client.config import ClientConfig
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
_FINISHED: Final = "_SUCCESS"
_OWN_PREFIXES: Final = ("_", ".", "part-", "topic=")
_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}
_ICEBERG_TABLE: Final = "export.records"


class TableFormat(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    options: Mapping[str, str]  # Of the data source.
    output: str  # A folder, or a URL that Spark can write to.
    table_format: TableFormat = TableFormat.PARQUET
    partition_by_topic: bool = True
    overwrite: bool = False
    compression: str = "zstd"

    @property
    def is_partitioned(self) -> bool:
        """Iceberg keeps partition values in its metadata and wants the column in the files."""
        return self.partition_by_topic and self.table_format is not TableFormat.ICEBERG

    @property
    def local_folder(self) -> Path | None:
        """None where the output is somewhere else than on a disk."""
        parts = urlsplit(self.output)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        return None if parts.scheme else Path(self.output).absolute()

    @property
    def url(self) -> str:
        folder = self.local_folder
        return self.output if folder is None else folder.as_uri()


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    output: str
    table_format: TableFormat
    record_count: int
    seconds: float
    size_bytes: int | None  # None where the output is not on this machine.


def check_request(request: ExportRequest) -> None:
    """Everything that can be known to be wrong before Spark is started."""
    from quorate.backup.spark.data_source.options import parse_options

    options = parse_options(request.options)
    if request.is_partitioned and "topic" not in options.columns:
        raise QuorateError("the option columns leaves out topic, by which the table is to be partitioned")
    if request.table_format is not TableFormat.PARQUET:
        if request.local_folder is None:
            raise QuorateError(f"a {request.table_format} table can be written to a local folder only")
        check_packages(request.table_format)
    if request.compression not in _CODECS:
        raise QuorateError(f"--compression {request.compression}: choose one of {', '.join(_CODECS)}")
    _write_mode(request)
    if request.local_folder is not None:
        _check_writable(request.local_folder)


def live_cluster(request: ExportRequest) -> ClientConfig | None:
    """How the cluster is reached that is exported; None for a backup."""
    from quorate.backup.spark.data_source.options import parse_options

    source = parse_options(request.options).source
    return source if isinstance(source, ClientConfig) else None


def run_export(spark: SparkQueries, request: ExportRequest, watcher: QueryWatcher) -> ExportReport:
    started = time.monotonic()
    check_request(request)
    record_count = spark.query(_TableWriting(request), watcher)
    folder = request.local_folder
    if folder is not None:
        add_table_metadata(request.table_format, folder, is_partitioned=request.is_partitioned)
    return ExportReport(
        output=request.url,
        table_format=request.table_format,
        record_count=record_count,
        seconds=time.monotonic() - started,
        size_bytes=_size_of(folder),
    )


class _TableWriting:
    """Can be pickled: the session may be another process's. Gives the number of records."""

    def __init__(self, request: ExportRequest) -> None:
        self._request = request

    def __call__(self, session: "SparkSession") -> int:
        return _write(session, self._request)


def _write(session: "SparkSession", request: ExportRequest) -> int:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    from quorate.backup.spark.data_source.source import FORMAT, QuorateSource

    session.dataSource.register(QuorateSource)
    # The old default, 96 bits, is known to few other readers.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    written = Observation()
    frame = session.read.format(FORMAT).options(**request.options).load()
    writer = frame.observe(written, count(lit(1)).alias("records")).write.mode(_write_mode(request))
    if request.is_partitioned:
        writer = writer.partitionBy("topic")
    writer.option("compression", request.compression).parquet(request.url)
    return int(written.get["records"])


def _write_mode(request: ExportRequest) -> str:
    """Nothing is overwritten unless the user says so, except what an unfinished export left behind."""
    folder = request.local_folder
    if request.overwrite:
        return "overwrite"
    if folder is None or not folder.exists():
        return "error"
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise QuorateError(f"the output {folder} cannot be used: {error.strerror}") from None
    if _FINISHED in names:
        raise QuorateError(f"{folder} holds a finished export: choose another folder, or give --overwrite")
    foreign = [name for name in names if not name.startswith(_OWN_PREFIXES)]
    if foreign:
        raise QuorateError(f"{folder} holds {foreign[0]}, which is of no export: choose another folder")
    return "overwrite"


def _check_writable(folder: Path) -> None:
    """Tried, not asked: permissions are not all that can be in the way. What is made here is taken away again."""
    made: list[Path] = []
    try:
        for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
            missing.mkdir()
            made.append(missing)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise QuorateError(f"the output {folder} cannot be written: {error.strerror}") from None
    finally:
        for each in reversed(made):
            with suppress(OSError):
                each.rmdir()


def _size_of(folder: Path | None) -> int | None:
    if folder is None or not folder.exists():
        return None
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def check_packages(table_format: str) -> None:
    package = _PACKAGES[table_format]
    if find_spec(package) is None:
        raise QuorateError(
            f"export to {table_format} needs the package {package}: pip install 'quorate[{table_format}]'"
        )


def add_table_metadata(table_format: str, folder: Path, *, is_partitioned: bool) -> None:
    """The last step: until it is done, a reader of the table sees none. Parquet alone needs no more."""
    if table_format in _PACKAGES and next(folder.rglob("*.parquet"), None) is None:
        raise QuorateError(f"there is no record to export, and a {table_format} table needs one")
    match table_format:
        case "delta":
            _make_delta_table(folder, is_partitioned=is_partitioned)
        case "iceberg":
            _make_iceberg_table(folder)


def _make_delta_table(folder: Path, *, is_partitioned: bool) -> None:
    from deltalake import Field, Schema, convert_to_deltalake  # type: ignore[import-not-found, unused-ignore]

    if is_partitioned:
        topics = Schema([Field("topic", "string", nullable=True)])
        convert_to_deltalake(str(folder), partition_by=topics, partition_strategy="hive")
    else:
        convert_to_deltalake(str(folder))


def _make_iceberg_table(folder: Path) -> None:
    """A catalog of its own beside the data, in one SQLite file."""
    import pyarrow.parquet
    from pyiceberg.catalog.sql import SqlCatalog  # type: ignore[import-not-found, unused-ignore]

    files = sorted(str(path) for path in folder.rglob("*.parquet"))
    catalog = SqlCatalog("export", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("export")
    schema = pyarrow.parquet.read_schema(files[0]).remove_metadata()
    table = catalog.create_table(_ICEBERG_TABLE, schema=schema, location=folder.as_uri())
    table.add_files([Path(file).as_uri() for file in files])
