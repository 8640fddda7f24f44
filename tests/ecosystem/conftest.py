"""One cluster for the whole folder, the jars of the programs, and a record of what the tests have shown."""

from collections.abc import Generator, Iterator

import pytest

from tests.ecosystem import programs
from tests.ecosystem.proofs import Proof, ProofResult, merge_results
from tests.peers.jars import PeersUnavailableError
from tests.peers.quorate_cluster import QuorateCluster

RESULTS = pytest.StashKey[list[ProofResult]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proves(client, version, feature): what the test's success shows")
    config.stash[RESULTS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    result = _result(report, call)
    if result is not None:
        for mark in item.iter_markers("proves"):
            client, version, feature = mark.args
            proof = Proof(client=client, version=version, feature=feature)
            item.config.stash[RESULTS].append(
                ProofResult(client=proof.client, version=proof.version, feature=proof.feature, result=result)
            )
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    merge_results(session.config.stash[RESULTS])


def _result(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str | None:
    """What the phase says of the test; None where another phase has the word."""
    if report.skipped and call.excinfo is not None:
        return f"skipped: {call.excinfo.value}"
    if report.failed:
        return "failed"
    return "passed" if report.when == "call" else None


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
