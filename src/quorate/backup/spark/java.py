"""Finds the Java that Spark will run on, or says what to install. Does I/O."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from quorate.kernel.errors import QuorateError

OLDEST_VERSION = 17
_INSTALL = "install one, for example with: apt-get install openjdk-17-jre-headless"
_VERSION_LINE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


def find_java(environment: Mapping[str, str]) -> Path:
    """The ``java`` that Spark's scripts will take: that of JAVA_HOME, or else the first on the PATH."""
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise QuorateError(f"JAVA_HOME is {home}, and there is no bin/java in it: correct it, or {_INSTALL}")
    else:
        found = shutil.which("java", path=environment.get("PATH"))
        if found is None:
            raise QuorateError(f"Spark needs Java {OLDEST_VERSION} or newer, and none was found: {_INSTALL}")
        java = Path(found)
    version = java_version(java)
    if version is not None and version < OLDEST_VERSION:
        raise QuorateError(f"Spark needs Java {OLDEST_VERSION} or newer, and {java} is Java {version}: {_INSTALL}")
    return java


def java_version(java: Path) -> int | None:
    """From the ``release`` file beside it, which costs no process; None where there is none."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return None
    match = _VERSION_LINE.search(text)
    return int(match[1]) if match else None
