"""Fetching the jars, with stand-ins for Java and Maven: once, together, and with a reason where it cannot be done."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.peers import jars

COUNTING_MAVEN = """#!/bin/sh
for argument; do case $argument in -DoutputDirectory=*) folder=${argument#*=};; esac; done
echo run >> "$RUNS"
mkdir -p "$folder" && touch "$folder/kafka.jar"
"""
FAILING_MAVEN = """#!/bin/sh
echo "[ERROR] no registry here"
exit 1
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a folder of programs in front of all others."""
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    install(folder, "java", "#!/bin/sh\n")
    return folder


def test_processes_that_start_together_fetch_once(programs: Path, tmp_path: Path) -> None:
    install(programs, "mvn", COUNTING_MAVEN)

    with ThreadPoolExecutor(4) as threads:
        folders = {folder.result() for folder in [threads.submit(jars.fetch_jars) for _ in range(4)]}

    assert [jar.name for folder in folders for jar in folder.iterdir()] == ["kafka.jar"]
    assert (tmp_path / "runs").read_text() == "run\n"


def test_changed_pom_fetches_anew(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "mvn", COUNTING_MAVEN)
    before = jars.fetch_jars()
    changed = tmp_path / "pom.xml"
    changed.write_text("<project/>")
    monkeypatch.setattr(jars, "POM", changed)

    assert jars.fetch_jars() != before


def test_failure_of_maven_is_the_reason_and_leaves_no_half_folder(programs: Path) -> None:
    install(programs, "mvn", FAILING_MAVEN)

    with pytest.raises(jars.PeersUnavailableError, match="no registry here"):
        jars.fetch_jars()

    install(programs, "mvn", COUNTING_MAVEN)
    assert [jar.name for jar in jars.fetch_jars().iterdir()] == ["kafka.jar"]


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_missing_program_is_the_reason(programs: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    install(programs, "mvn", COUNTING_MAVEN)
    (programs / missing).unlink()
    monkeypatch.setenv("PATH", str(programs))

    with pytest.raises(jars.PeersUnavailableError, match=missing):
        jars.fetch_jars()


def install(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(script)
    os.chmod(program, program.stat().st_mode | stat.S_IXUSR)
