from pathlib import Path

import pytest

from quorate.backup.spark.session.settings import find_java
from quorate.kernel.errors import QuorateError


def install_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    chosen = install_java(tmp_path / "chosen", "17.0.1")
    other = install_java(tmp_path / "other", "21")
    assert find_java({"JAVA_HOME": str(tmp_path / "chosen"), "PATH": str(other.parent)}) == chosen


def test_first_java_on_the_path_is_taken(tmp_path: Path) -> None:
    java = install_java(tmp_path, "21")
    assert find_java({"PATH": str(java.parent)}) == java


def test_without_java_the_sentence_says_what_to_install() -> None:
    with pytest.raises(QuorateError, match="install one, for example with"):
        find_java({"PATH": "/nonexistent"})


def test_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="JAVA_HOME is"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_old_java_is_refused_by_its_version(tmp_path: Path, version: str) -> None:
    java = install_java(tmp_path, version)
    with pytest.raises(QuorateError, match=r"needs Java 17 or newer, and .* is Java (11|8)"):
        find_java({"PATH": str(java.parent)})
