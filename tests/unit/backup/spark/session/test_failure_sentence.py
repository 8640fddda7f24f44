import pytest

pytest.importorskip("pyspark")

from quorate.backup.spark.session.job import failure_sentence


def test_own_error_is_taken_out_of_a_workers_traceback() -> None:
    text = (
        "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nquorate.backup.errors.StorageError: the disk is full\n\nDriver stacktrace:'
    )
    assert failure_sentence(RuntimeError(text)) == "the disk is full"


def test_foreign_error_is_one_line() -> None:
    assert failure_sentence(RuntimeError("[JOB_CANCELLED] by user\nstack\nstack")) == (
        "the Spark job failed: [JOB_CANCELLED] by user"
    )
