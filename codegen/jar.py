"""Gets Apache Kafka's client library from Maven Central, and reads the message definitions that are packed in it."""

import json
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

KAFKA_VERSION = "4.3.1"
ARTIFACT = f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
FOLDER = Path(__file__).parent.parent / ".peers/codegen"
COPY_ARTIFACT = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
FETCH_TIMEOUT_S = 200

# The definitions are JSON with comments, which always fill whole lines.
_COMMENT_LINE = re.compile(r"^\s*//.*$", re.MULTILINE)


class JarUnavailableError(Exception):
    """Maven is not there, or could not fetch the jar."""


def fetch_jar(folder: Path = FOLDER) -> Path:
    """The path of the jar, fetched with Maven unless an earlier run has."""
    jar = folder / f"kafka-clients-{KAFKA_VERSION}.jar"
    if zipfile.is_zipfile(jar):
        return jar
    command = ["mvn", "-q", "-B", COPY_ARTIFACT, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JarUnavailableError(f"cannot run Maven to fetch {ARTIFACT}: {error}") from error
    if not zipfile.is_zipfile(jar):
        output = (finished.stdout + finished.stderr).strip()
        raise JarUnavailableError(f"Maven could not fetch {ARTIFACT}: {output[-500:]}")
    return jar


def read_definitions(jar: Path) -> list[dict[str, Any]]:
    """All message definitions in the jar, ordered by file name."""
    with zipfile.ZipFile(jar) as archive:
        names = sorted(name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name))
        return [json.loads(_COMMENT_LINE.sub("", archive.read(name).decode())) for name in names]
