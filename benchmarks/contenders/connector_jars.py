"""Which build of Spark's Kafka source the benchmark runs, and its jars.

It should have the version of Spark itself. Where Maven cannot fetch that one, a pinned older one
takes its place; its name is told with the results, so that nobody takes the one for the other.
"""

from pathlib import Path

import msgspec
import pyspark

from tests.peers.jars import PeersUnavailableError, fetch_jars

_POM = Path(__file__).parent / "connector-pom.xml"
# Of the connector and of its token provider, which is of use with delegation tokens only.
STAND_IN_VERSIONS = ("4.2.0", "4.0.0")


class Connector(msgspec.Struct, frozen=True, kw_only=True):
    description: str
    jars: tuple[Path, ...]
    is_of_spark_version: bool


def look_for_connector() -> tuple[Connector | None, str]:
    """And what a page says of it: its version, or why it was not measured."""
    try:
        connector = find_connector()
    except PeersUnavailableError as error:
        return None, f"not measured: {error}"
    return connector, connector.description


def find_connector() -> Connector:
    """Raises ``PeersUnavailableError`` where neither can be fetched."""
    version = pyspark.__version__
    try:
        folder = _fetch(version, version)
        return Connector(description=version, jars=_needed(folder), is_of_spark_version=True)
    except PeersUnavailableError:
        return stand_in_connector()


def stand_in_connector() -> Connector:
    """The pinned one: known to be there, and to work with this Spark."""
    connector, token_provider = STAND_IN_VERSIONS
    return Connector(
        description=(
            f"{connector}, with token provider {token_provider}, on Spark {pyspark.__version__}, as Maven could not"
            f" fetch connector {pyspark.__version__}"
        ),
        jars=_needed(_fetch(connector, token_provider)),
        is_of_spark_version=False,
    )


def _fetch(connector: str, token_provider: str) -> Path:
    properties = (f"connector.version={connector}", f"token.provider.version={token_provider}")
    return fetch_jars(_POM, "spark-connector", properties)


def _needed(folder: Path) -> tuple[Path, ...]:
    """Without what Spark brings itself, in versions of its own."""
    own = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return tuple(jar for jar in sorted(folder.glob("*.jar")) if _artifact(jar) not in own)


def _artifact(jar: Path) -> str:
    """The file's name without its version."""
    return jar.stem.rpartition("-")[0]
