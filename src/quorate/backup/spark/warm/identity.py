"""What a warm Spark is named by: all that its processes depend on. Commands that agree in it share one.

A job of ours carries the environment, the folder and the umask of its command to the workers, so these matter only by
what has its effect when a process starts. Of a query they matter as they are: Spark's own code reads them.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import quorate
from quorate.backup.spark.session.settings import SparkSettings, effective_master

_AT_THE_START = (
    *("PYTHON", "PYSPARK", "SPARK", "HADOOP", "QUORATE"),
    *("JAVA", "JDK", "_JAVA", "LD_", "MALLOC", "GLIBC", "LC_", "LANG", "TZ"),
)
# Every shell sets them anew.
_OF_THE_SHELL = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "TERM", "COLUMNS", "LINES"})


def identity(settings: SparkSettings, java: Path, environment: Mapping[str, str], folder: str, umask: int) -> str:
    parts = [
        quorate.__version__,
        *_package_state(Path(quorate.__file__).parent),
        _pyspark_version(),
        sys.executable,
        sys.version,
        str(java.resolve()),
        _release(java),
        effective_master(settings.master),
        str(settings.rows_pass_jvm),
        *(f"{name}={value}" for name, value in sorted(settings.conf.items())),
        "environment",
        *(f"{name}={environment[name]}" for name in sorted(environment) if _matters(name, settings)),
    ]
    if settings.rows_pass_jvm:
        parts += [folder, oct(umask)]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


def _matters(name: str, settings: SparkSettings) -> bool:
    if settings.rows_pass_jvm:
        return name not in _OF_THE_SHELL
    return name.startswith(_AT_THE_START)


def _package_state(package: Path) -> Iterator[str]:
    """The version alone does not tell an edited checkout from what it was before."""
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                state = os.stat(os.path.join(folder, name))
                yield f"{folder}/{name} {state.st_size} {state.st_mtime_ns}"


def _pyspark_version() -> str:
    """Read, not imported: that would take longer than all else here."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return ""
    version = Path(found.origin).parent / "version.py"
    return f"{version} {version.read_text() if version.is_file() else ''}"


def _release(java: Path) -> str:
    try:
        return (java.resolve().parent.parent / "release").read_text()
    except OSError:
        return ""
