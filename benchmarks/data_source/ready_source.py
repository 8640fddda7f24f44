"""A data source that has nothing to do: its tasks send Arrow batches that are ready, as many rows as they are told.

What Spark makes of them costs as much as with any data source in Python. So no such source can be faster.
"""

import gc
import random
from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quorate.backup.spark.data_source.columns import COLUMN_NAMES, arrow_schema, schema_ddl

FORMAT = "ready"
# As many as Quorate's source sends at once.
_BATCH_BYTES = 4 * 1024 * 1024


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return schema_ddl(COLUMN_NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark names it
        return _ReadyReader(int(self.options["rows"]), int(self.options["tasks"]), int(self.options["value_bytes"]))


class _ReadyReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int, value_bytes: int) -> None:
        self._rows = rows
        self._tasks = tasks
        self._value_bytes = value_bytes

    def partitions(self) -> Sequence[InputPartition]:
        cuts = [self._rows * index // self._tasks for index in range(self._tasks + 1)]
        return [InputPartition(cuts[index + 1] - cuts[index]) for index in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        batch = _ready_batch(self._value_bytes)
        left: int = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


@cache
def _ready_batch(value_bytes: int) -> pyarrow.RecordBatch:
    """Rows as the benchmark's records give them. Once in a worker, which need not look for garbage in it again."""
    count = _BATCH_BYTES // value_bytes
    values = random.Random(1).randbytes(count * value_bytes)
    schema = arrow_schema(COLUMN_NAMES)
    columns = {
        "topic": ["rows-none"] * count,
        "partition": [0] * count,
        "offset": range(count),
        "timestamp": range(count),
        "timestamp_type": [0] * count,
        "key": [None] * count,
        "value": [values[row * value_bytes : (row + 1) * value_bytes] for row in range(count)],
        "headers": [[]] * count,
    }
    arrays = [pyarrow.array(columns[field.name], field.type) for field in schema]
    gc.freeze()
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
