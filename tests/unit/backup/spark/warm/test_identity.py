"""Which commands share a warm Spark: those that would have started the same one."""

from pathlib import Path

import pytest

from quorate.backup.spark.session.settings import SparkSettings
from quorate.backup.spark.warm.place import identity

JAVA = Path("/nowhere/bin/java")
ENVIRONMENT = {"HOME": "/home/me", "PYTHONPATH": "/lib"}
LOCAL = SparkSettings(master="local[2]")
EXPORT = SparkSettings(master="local[2]", rows_pass_jvm=True)


def name(
    settings: SparkSettings = LOCAL, *, java: Path = JAVA, folder: str = "/here", umask: int = 0o22, **changed: str
) -> str:
    return identity(settings, java, ENVIRONMENT | changed, folder, umask)


@pytest.mark.parametrize(
    "other",
    [
        name(SparkSettings(master="local[3]")),
        name(SparkSettings(master="local[2]", conf={"spark.a": "b"})),
        name(SparkSettings(master="local[2]", conf={"spark.a=b": ""})),
        name(EXPORT),
        name(java=Path("/nowhere/else/bin/java")),
        name(PYTHONPATH="/other"),
        name(PYSPARK_SUBMIT_ARGS="--verbose"),
        name(JAVA_TOOL_OPTIONS="-Xmx1g"),
        name(QUORATE_NATIVE="0"),
    ],
)
def test_what_a_process_is_started_with_makes_another_one(other: str) -> None:
    assert other != name()


def test_what_travels_with_each_job_does_not() -> None:
    assert name(AWS_ACCESS_KEY_ID="me", KAFKA_PASSWORD="p", folder="/there", umask=0o77) == name()
    assert name(SparkSettings(master="local[2]", keep_warm_s=7)) == name()


def test_spark_s_own_code_reads_environment_and_folder_of_its_process_in_an_export() -> None:
    assert name(EXPORT, AWS_ACCESS_KEY_ID="me") != name(EXPORT)
    assert name(EXPORT, folder="/there") != name(EXPORT)
    assert name(EXPORT, umask=0o77) != name(EXPORT)
    assert name(EXPORT, SHLVL="3", _="/bin/quorate") == name(EXPORT)


def test_bytes_that_are_no_text_are_a_name_too() -> None:
    assert name(PYTHONPATH="/\udcff") != name()
