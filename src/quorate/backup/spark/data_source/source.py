"""What Spark sees: the data source ``quorate`` and its readers.

Filters are options and not pushed down: Spark 4.3 keeps what was pushed for one query and applies it to the next one
on the same DataFrame. Nor does it say which columns a query needs; the option ``columns`` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quorate.backup.spark.data_source.backup_reading import BackupTask, plan_backup
from quorate.backup.spark.data_source.columns import COLUMN_TYPES, schema_ddl
from quorate.backup.spark.data_source.live_planning import plan_live
from quorate.backup.spark.data_source.live_reading import LiveTask
from quorate.backup.spark.data_source.options import SourceOptions, parse_options
from quorate.backup.spark.data_source.stream_source import QuorateStreamReader
from quorate.backup.spark.data_source.worker import read_task
from quorate.client.config import ClientConfig
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    import pyarrow

FORMAT = "quorate"


class QuorateSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = parse_options(options)

    def schema(self) -> str:
        return schema_ddl(self._parsed.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return QuorateReader(with_columns(self._parsed, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return QuorateStreamReader(with_columns(self._parsed, schema))


class QuorateReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        source = self._options.source
        tasks: Sequence[LiveTask | BackupTask]
        tasks = (
            plan_live(source, self._options) if isinstance(source, ClientConfig) else plan_backup(source, self._options)
        )
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        return read_task(partition)


def with_columns(options: SourceOptions, schema: StructType) -> SourceOptions:
    """A schema that the user gave chooses columns; it cannot change their types."""
    for field in schema.fields:
        if field.name not in COLUMN_TYPES or field.dataType.simpleString() != COLUMN_TYPES[field.name]:
            raise QuorateError(
                f"the schema asks for {field.name} {field.dataType.simpleString()}; there are "
                f"{schema_ddl(list(COLUMN_TYPES))}"
            )
    return msgspec.structs.replace(options, columns=tuple(field.name for field in schema.fields))
