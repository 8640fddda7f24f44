"""Options and fixtures that several folders of tests share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.peers import jars
from tests.peers.kafka_tools import ToolShell
from tests.proof_recorder import ProofRecorder
from tests.proofs import MARK

# Other work on the machine must not fail a test.
settings.register_profile("quorate", deadline=None)
settings.load_profile("quorate")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=["quorate", "apache-kafka"],
        default="quorate",
        help="what the compatibility tests run against; Apache Kafka is the oracle for the tests themselves",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}([client, version,] feature): what the test's success shows")
    if config.getoption("--target") == "quorate":
        config.pluginmanager.register(ProofRecorder())


@pytest.fixture(scope="session")
def kafka_classpath() -> str:
    """Apache Kafka's jars; without Java, Maven or the registry the test is skipped, with the reason."""
    try:
        return jars.kafka_classpath()
    except jars.PeersUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tool_shell(kafka_classpath: str) -> Iterator[ToolShell]:
    """One JVM for all runs of Apache Kafka's command-line tools."""
    with ToolShell() as shell:
        yield shell
