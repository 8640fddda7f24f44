"""The part of a test run that keeps what the tests prove (see ``tests.proofs``)."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.proofs import MARK, ROOT, Proof, Software, keep_results, python_client, together


class ProofRecorder:
    def __init__(self) -> None:
        self._proofs: list[Proof] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        result = _result(report, call)
        if result is not None:
            self._proofs += _proofs(item, result)
        return report

    def pytest_sessionfinish(self) -> None:
        keep_results(together(self._proofs))


def _result(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str | None:
    """What the phase says of the test; None where another phase has the word."""
    if report.skipped and call.excinfo is not None:
        return f"skipped: {call.excinfo.value}"
    if report.failed:
        return "failed"
    return "passed" if report.when == "call" else None


def _proofs(item: pytest.Item, result: str) -> Iterator[Proof]:
    test = Path(item.path).relative_to(ROOT).as_posix()
    for mark in item.iter_markers(MARK):
        *software, feature = mark.args
        for client, version in [software] if software else _client_of(item):
            yield Proof(client=client, version=version, feature=feature, result=result, test=test)


def _client_of(item: pytest.Item) -> list[Software]:
    """The client that is the test's parameter; a test without one proves nothing of its module's row."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return [python_client(parameters[name].name) for name in ("client", "client_type") if name in parameters]
