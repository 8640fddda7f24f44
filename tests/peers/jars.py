"""Apache Kafka's jars: fetched once with Maven into ``.peers/`` of the checkout, and how to run a class from them.

The folder is named after the content of the pom, so a changed pom fetches anew. Processes that start together take
turns by a lock file; a folder appears under its final name only when it is complete.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
POM = FOLDER / "pom.xml"
TIERED_STORAGE_POM = FOLDER / "tiered-storage-pom.xml"
LOG4J_CONFIG = FOLDER / "log4j2.properties"
CACHE = FOLDER.parent.parent / ".peers"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S = 600

# Start-up counts more than speed at full heat: no optimising compiler, one collector thread.
QUICK_START_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class PeersUnavailableError(Exception):
    """Apache Kafka cannot be used here; the message says what is missing."""


def java_command(
    main: str,
    *arguments: str,
    heap_mb: int = 256,
    jvm_options: Sequence[str] = QUICK_START_OPTIONS,
    more_jars: Sequence[Path] = (),
) -> list[str]:
    """The command that runs a main class, or a single ``.java`` source file, with Apache Kafka on the classpath."""
    return [
        "java",
        f"-Xmx{heap_mb}m",
        *jvm_options,
        f"-Dlog4j2.configurationFile={LOG4J_CONFIG}",
        "-cp",
        ":".join([kafka_classpath(), *map(str, more_jars)]),
        main,
        *arguments,
    ]


@cache
def kafka_version(pom: Path = POM) -> str:
    """The version that a pom asks for."""
    found = re.search(r"<kafka.version>(.*)</kafka.version>", pom.read_text())
    assert found is not None
    return found[1]


@cache
def kafka_classpath() -> str:
    """All jars, joined for ``-cp``, in an order that does not change. Fetches them when they are not there yet."""
    return ":".join(str(jar) for jar in sorted(fetch_jars().glob("*.jar")))


def tiered_storage_jars() -> list[Path]:
    """Beside Apache Kafka's own: a remote storage (KIP-405) that is a folder."""
    folder = fetch_jars(TIERED_STORAGE_POM, "tiered-storage", [f"kafka.version={kafka_version()}"])
    return sorted(folder.glob("*.jar"))


def fetch_jars(pom: Path | None = None, peer: str = "kafka", properties: Sequence[str] = ()) -> Path:
    """The folder with the jars of a pom, Apache Kafka's if none is named; ``properties`` are its ``name=value``."""
    pom = pom or POM
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeersUnavailableError(f"Apache Kafka needs {program}, which is not installed (make jvm)")
    content = pom.read_bytes() + "".join(f"\n{each}" for each in properties).encode()
    folder = CACHE / f"{peer}-{hashlib.sha256(content).hexdigest()[:16]}"
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with _exclusive(CACHE / "fetch.lock"):
        if not folder.exists():
            _copy_dependencies(pom, properties, folder)
    return folder


def _copy_dependencies(pom: Path, properties: Sequence[str], folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), COPY_DEPENDENCIES, *(f"-D{each}" for each in properties)]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        raise PeersUnavailableError(
            f"Maven could not fetch {folder.name}: {_first_error_line(error.stdout)}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PeersUnavailableError(f"Maven did not fetch {folder.name} within {FETCH_TIMEOUT_S} s") from error
    os.rename(unfinished, folder)


def _first_error_line(maven_output: str) -> str:
    return next((line for line in maven_output.splitlines() if "ERROR" in line), "no error was printed")


@contextmanager
def _exclusive(lock_path: Path) -> Iterator[None]:
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
