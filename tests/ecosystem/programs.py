"""Java programs of Kafka's ecosystem as child processes: which jars they run on, and in which version."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.peers.child_process import ChildProcess
from tests.peers.jars import LOG4J_CONFIG, QUICK_START_OPTIONS, fetch_jars, kafka_version

FOLDER = Path(__file__).parent
POM = FOLDER / "pom.xml"


#: Of Kafka Streams, Kafka Connect and MirrorMaker: they are released together.
KAFKA_VERSION = kafka_version(POM)


@cache
def ecosystem_classpath() -> str:
    return ":".join(str(jar) for jar in sorted(fetch_jars(POM, "ecosystem").glob("*.jar")))


def start_java(main: str, *arguments: str, log: Path, heap_mb: int = 384) -> ChildProcess:
    """Run a main class, or a single ``.java`` file, which is compiled first."""
    options = [f"-Xmx{heap_mb}m", *QUICK_START_OPTIONS]
    logging = [f"-Dlog4j2.configurationFile={LOG4J_CONFIG}", "-Dquorate.log.level=warn"]
    return ChildProcess(["java", *options, *logging, "-cp", ecosystem_classpath(), main, *arguments], log)


def write_properties(path: Path, properties: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)
