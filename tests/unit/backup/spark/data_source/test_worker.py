"""What a task of the data source leaves behind in its worker."""

import gc
from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import InputPartition

from quorate.backup.spark.data_source.worker import freeze_what_is_loaded, read_task


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    freeze_what_is_loaded.cache_clear()
    yield
    gc.unfreeze()


def test_first_task_of_a_worker_freezes_what_is_loaded_and_later_ones_nothing() -> None:
    assert list(read_task(InputPartition(None))) == []
    assert gc.get_freeze_count()
    gc.unfreeze()
    assert list(read_task(InputPartition(None))) == []
    assert not gc.get_freeze_count()
