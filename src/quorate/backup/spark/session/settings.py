"""Which Spark and which Java a job runs on, and with which settings."""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from quorate.kernel.errors import QuorateError

# A local master without a second number does not retry: one killed Python worker would end the whole job.
TASK_ATTEMPTS = 4
_LOCAL_MASTER = re.compile(r"local(?:\[\s*(\*|\d+)\s*\])?")
_DAEMON_MODULE = "quorate.backup.spark.session.worker_daemon"

_QUICK_START_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # Nothing to adapt: the number of tasks is the plan's.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.locality.wait": "0s",
    "spark.log.level": "ERROR",
}
# The JVM only hands on a row for each task: compiling code for that takes longer than all such rows.
_INTERPRETED_CONF = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_LONGEST_SOCKET_FOLDER = 60  # In bytes: with a name of 42, a socket's path may have 107.
_FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1"
QUICK_START_JVM_OPTIONS = (_FIRST_COMPILER_ONLY, "-XX:+UseSerialGC")


#: Among the settings of Spark, since those can be given everywhere: in files and on the command line.
KEEP_CLASSES = "spark.quorate.keepClasses"
OLDEST_VERSION = 17
_INSTALL = "install one, for example with: apt-get install openjdk-17-jre-headless"
_VERSION_LINE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    master: str = "local[*]"
    remote: str | None = None  # A Spark Connect server; then ``master`` means nothing.
    conf: dict[str, str] = {}
    rows_pass_jvm: bool = False  # Worth the JVM's better compiler, which takes its time to get going.
    keep_warm_s: float | None = None  # Share a Spark that stays for so long after the last command.

    @property
    def is_local(self) -> bool:
        return self.remote is None and (self.master == "local" or self.master.startswith("local["))

    @property
    def keeps_classes(self) -> bool:
        """Whether what the JVM has loaded is kept for the next start."""
        return self.conf.get(KEEP_CLASSES, "true").strip().lower() != "false"


def effective_master(master: str) -> str:
    """``local[2]`` becomes ``local[2,4]``; everything else stays."""
    match = _LOCAL_MASTER.fullmatch(master.strip())
    return f"local[{match[1] or 1},{TASK_ATTEMPTS}]" if match else master


def spark_conf(
    settings: SparkSettings, jvm_options: list[str], *, folder: Path, package_zip: Path | None
) -> dict[str, str]:
    """All that the session is started with; what the user set wins. ``folder`` is deleted after the session."""
    conf = _QUICK_START_CONF | ({} if settings.rows_pass_jvm else _INTERPRETED_CONF)
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    conf["spark.master"] = effective_master(settings.master)
    own_options = [
        option for option in QUICK_START_JVM_OPTIONS if option != _FIRST_COMPILER_ONLY or not settings.rows_pass_jvm
    ]
    conf["spark.driver.extraJavaOptions"] = " ".join([*own_options, *jvm_options])
    if settings.is_local:
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        conf["spark.python.daemon.module"] = _DAEMON_MODULE
        conf["spark.local.dir"] = str(folder)
        if len(os.fsencode(folder)) <= _LONGEST_SOCKET_FOLDER:
            conf["spark.python.unix.domain.socket.dir"] = str(folder)  # Else they stay behind in /tmp.
    if package_zip is not None:
        conf["spark.submit.pyFiles"] = str(package_zip)
    return conf | settings.conf


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
