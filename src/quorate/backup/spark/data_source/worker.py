"""Reads one task of the data source in a Spark worker: rows of a backup or of a live cluster. Does I/O."""

import gc
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from quorate.backup.spark.data_source.backup_reading import BackupTask, read_backup
from quorate.backup.spark.data_source.live_reading import LiveTask, read_live

if TYPE_CHECKING:
    import pyarrow


def read_task(partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
    yield from _rows_of(partition)
    freeze_what_is_loaded()


def _rows_of(partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
    match partition.value:
        case LiveTask() as task:
            return read_live(task)
        case BackupTask() as task:
            return read_backup(task)
        case _:  # Spark's own stand-in where there is nothing to read.
            return iter(())


@cache
def freeze_what_is_loaded() -> None:
    """Once in a worker: it collects garbage after every task, and what is loaded by now need not be looked at again."""
    gc.collect()
    gc.freeze()
