from pathlib import Path

import pytest

from quorate.backup.spark.session.settings import SparkSettings, effective_master, spark_conf

FOLDER = Path("/tmp/session")


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_master_always_retries_killed_workers(master: str, expected: str) -> None:
    assert effective_master(master) == expected


def test_own_daemon_only_where_the_package_is_sure_to_be_installed() -> None:
    assert "spark.python.daemon.module" in spark_conf(
        SparkSettings(master="local[2]"), [], folder=FOLDER, package_zip=None
    )
    cluster = spark_conf(SparkSettings(master="spark://host:7077"), [], folder=FOLDER, package_zip=Path("quorate.zip"))
    assert "spark.python.daemon.module" not in cluster
    assert cluster["spark.submit.pyFiles"] == "quorate.zip"


def test_settings_of_the_user_win() -> None:
    conf = spark_conf(
        SparkSettings(conf={"spark.ui.enabled": "true"}), ["-Xshare:auto"], folder=FOLDER, package_zip=None
    )
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.driver.extraJavaOptions"].endswith("-Xshare:auto")


def test_jvm_that_rows_pass_has_its_better_compiler() -> None:
    quick, thorough = (
        spark_conf(SparkSettings(rows_pass_jvm=passes), [], folder=FOLDER, package_zip=None) for passes in (False, True)
    )
    assert "-XX:TieredStopAtLevel=1" in quick["spark.driver.extraJavaOptions"]
    assert thorough["spark.driver.extraJavaOptions"] == "-XX:+UseSerialGC"
    assert quick["spark.sql.codegen.wholeStage"] == "false"
    assert "spark.sql.codegen.wholeStage" not in thorough


def test_sockets_lie_in_the_session_s_folder_where_their_names_fit() -> None:
    near, deep = (
        spark_conf(SparkSettings(), [], folder=folder, package_zip=None) for folder in (FOLDER, FOLDER / ("d" * 60))
    )
    assert near["spark.python.unix.domain.socket.dir"] == str(FOLDER)
    assert "spark.python.unix.domain.socket.dir" not in deep
