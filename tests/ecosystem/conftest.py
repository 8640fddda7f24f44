"""One cluster for the whole folder, and the jars of the programs."""

from collections.abc import Iterator

import pytest

from tests.ecosystem import programs
from tests.peers.jars import PeersUnavailableError
from tests.peers.quorate_cluster import QuorateCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorateCluster]:
    """Three nodes. A test that kills one starts it again."""
    with QuorateCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def ecosystem_jars() -> None:
    """Skips the test, with the reason, where the programs' jars cannot be had."""
    try:
        programs.ecosystem_classpath()
    except PeersUnavailableError as error:
        pytest.skip(str(error))
