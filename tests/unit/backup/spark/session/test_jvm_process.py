"""The JVM's process: found by the answer that it writes, and started by Spark's scripts where the quick way fails."""

import os
from pathlib import Path

import pytest

from quorate.backup.spark.session import jvm_process
from quorate.backup.spark.session.jvm_process import GatewayAddress, JvmProcess
from quorate.kernel.errors import QuorateError
from tests.eventually import eventually

CONF = {"spark.master": "local[2,4]"}
# The launcher's answer is this very program, which fails when it is to be the JVM.
JAVA = """#!/bin/sh
case "$*" in
    *launcher.Main*) printf '\\0\\n%s\\0org.apache.spark.deploy.SparkSubmit\\0' "$0" ;;
    *) echo "java.lang.Exception: no such jar" >&2; exit 1 ;;
esac
"""
# As py4j's gateway writes it: a port, the length of a secret, the secret; then it lives as long as its standard input.
ANSWERS = """#!/bin/sh
printf '\\0\\0\\060\\071\\0\\0\\0\\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.draft"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.draft" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat > /dev/null
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    _write(tmp_path / "jvm" / "bin" / "java", JAVA)
    monkeypatch.setattr(jvm_process, "_spark_home", lambda: home)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, "python3"))
    for name in [name for name in os.environ if name.startswith("SPARK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


def _write(path: Path, program: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program)
    path.chmod(0o755)


def test_where_the_quick_way_fails_the_scripts_are_tried(home: Path, tmp_path: Path) -> None:
    _write(home / "bin" / "spark-submit", ANSWERS)
    pids: list[int] = []
    process = JvmProcess(tmp_path, pids.append)
    try:
        process.start(CONF)
        assert process.gateway() == GatewayAddress(12345, "abc")
        assert process.is_running()
        assert len(pids) == 2
        assert list((tmp_path / "cache" / "quorate").iterdir()) == []  # What failed is not tried again.
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert not process.is_running()


def test_what_fails_by_both_ways_is_told(home: Path, tmp_path: Path) -> None:
    _write(home / "bin" / "spark-submit", "#!/bin/sh\necho 'ERROR it is not to be' >&2\nexit 1\n")
    process = JvmProcess(tmp_path)
    process.start(CONF)
    with pytest.raises(QuorateError, match="Spark did not start: ERROR it is not to be"):
        process.gateway()


def test_one_that_does_not_end_is_killed(home: Path, tmp_path: Path) -> None:
    _write(home / "bin" / "spark-submit", ANSWERS.replace("exec cat > /dev/null", "exec sleep 600"))
    pids: list[int] = []
    process = JvmProcess(tmp_path, pids.append)
    process.start(CONF | {"spark.driver.memory": "1g"})
    process.gateway()

    assert process.wait(0) is None

    eventually(lambda: not Path(f"/proc/{pids[0]}").exists(), "the process to be gone")
