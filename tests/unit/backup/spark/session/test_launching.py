"""How the JVM is started: quickly where the outcome of Spark's scripts is known, by the scripts everywhere else."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from quorate.backup.spark.session.launching import Launch, forget, launch

ENVIRONMENT = {"PATH": "/bin:/usr/bin"}
CONF = {
    "spark.master": "local[2,4]",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dname=value",
    "spark.x": "a b",
}
# Stands in for Java: tells the launcher's answer, as far as that depends on nothing, and counts how often it was asked.
JAVA = """#!/bin/sh
echo asked >> "$0.log"
printf 'a warning\\n\\0\\n%s\\0-cp\\0/jars/*\\0-Xmx1g\\0org.apache.spark.deploy.SparkSubmit\\0pyspark-shell\\0' "$0"
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "pyspark"
        self.home.mkdir()
        self.java = folder / "java"
        self.java.write_text(JAVA)
        self.java.chmod(0o755)
        self.cache = folder / "cache"

    def launch(self, *, conf: Mapping[str, str] = CONF, environment: Mapping[str, str] = ENVIRONMENT) -> Launch:
        return launch(self.home, self.java, CONF | dict(conf), ENVIRONMENT | dict(environment), self.cache)

    @property
    def asked_count(self) -> int:
        log = self.java.with_name("java.log")
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_command_of_the_scripts_without_the_scripts(machine: Machine) -> None:
    how = machine.launch()

    assert how.is_remembered
    assert how.command[:4] == [str(machine.java), "-cp", "/jars/*", "-Xmx1g"]
    assert how.command[4:7] == ["-XX:+UseSerialGC", "-Dname=value", "org.apache.spark.deploy.SparkSubmit"]
    assert how.command[-3:] == ["--conf", "spark.x=a b", "pyspark-shell"]
    assert how.environment["SPARK_HOME"] == str(machine.home)
    assert how.environment["PYTHONHASHSEED"] == "0"


def test_it_is_asked_once_and_again_when_it_was_forgotten(machine: Machine) -> None:
    first = machine.launch()
    assert machine.launch() == first
    assert machine.asked_count == 1

    forget(machine.home, machine.java, machine.cache)
    machine.launch()

    assert machine.asked_count == 2


def test_nothing_of_the_settings_is_remembered(machine: Machine) -> None:
    machine.launch(conf={"spark.hadoop.fs.s3a.secret.key": "secret"})

    (remembered,) = machine.cache.iterdir()
    assert json.loads(remembered.read_text()) == [str(machine.java), "-cp", "/jars/*", "-Xmx1g"]


@pytest.mark.parametrize("content", ["", "{", "[]", "[1]", '{"a": 1}', '"text"'])
def test_damaged_memory_is_asked_for_again(machine: Machine, content: str) -> None:
    first = machine.launch()
    (remembered,) = machine.cache.iterdir()
    remembered.write_text(content)

    assert machine.launch() == first
    assert machine.asked_count == 2


def test_cache_that_cannot_be_written_costs_a_question_each_time(machine: Machine) -> None:
    machine.cache.write_text("a file where the folder should be")

    assert machine.launch() == machine.launch()
    assert machine.asked_count == 2


@pytest.mark.parametrize(
    "environment",
    [
        {"SPARK_CONF_DIR": "/etc/spark"},
        {"SPARK_HOME": "/opt/spark"},
        {"SPARK_SUBMIT_OPTS": "-Dx=y"},
        {"PYSPARK_SUBMIT_ARGS": "--verbose pyspark-shell"},
        {"HADOOP_CONF_DIR": "/etc/hadoop"},
    ],
)
def test_a_variable_that_has_a_say_is_left_to_the_scripts(machine: Machine, environment: dict[str, str]) -> None:
    how = machine.launch(environment=environment)

    assert how.command[0] == str(machine.home / "bin" / "spark-submit")
    assert not how.is_remembered
    assert machine.asked_count == 0


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.driver.memory": "4g"},
        {"spark.driver.extraClassPath": "/jar"},
        {"spark.jars.packages": "a:b:1"},
        {"spark.submit.pyFiles": "/zip"},
        {"spark.master": "spark://host:7077"},
        {"spark.master": "yarn"},
    ],
)
def test_a_setting_that_has_a_say_is_left_to_the_scripts(machine: Machine, conf: dict[str, str]) -> None:
    assert machine.launch(conf=conf).command[0] == str(machine.home / "bin" / "spark-submit")


def test_files_of_the_installation_are_left_to_the_scripts(machine: Machine) -> None:
    (machine.home / "conf").mkdir()
    assert machine.launch().command[0] == str(machine.home / "bin" / "spark-submit")


def test_java_that_gives_no_answer_is_left_to_the_scripts(machine: Machine) -> None:
    machine.java.write_text("#!/bin/sh\nexit 1\n")
    how = machine.launch()
    assert (how.command[0], how.is_remembered) == (str(machine.home / "bin" / "spark-submit"), False)

    machine.java.write_text("#!/bin/sh\necho something else\n")
    assert not machine.launch().is_remembered
