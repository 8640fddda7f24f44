"""Sessions that follow each other in one process: none is led to the JVM of the one before, however that ended."""

import pytest

from quorate.backup.spark.session.settings import SparkSettings
from quorate.backup.spark.session.spark_session import open_spark
from quorate.backup.spark.session.tasks import Outcome, Report, ignore
from tests.spark_session import QuietWatcher, local_spark

pytest.importorskip("pyspark")


def echo(task: bytes, report: Report = ignore, /) -> Outcome:
    return Outcome(task, 0, 0)


def test_next_session_has_a_jvm_of_its_own() -> None:
    with local_spark() as spark:
        assert spark.run(echo, [b"1"], QuietWatcher()) == [b"1"]
    with pytest.raises(KeyboardInterrupt), open_spark(SparkSettings(master="local[1]"), "tests", print):
        raise KeyboardInterrupt
    with local_spark() as spark:
        assert spark.run(echo, [b"2"], QuietWatcher()) == [b"2"]
