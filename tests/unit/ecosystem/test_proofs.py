"""The record of what the tests of the ecosystem have shown."""

from pathlib import Path

from tests.ecosystem.proofs import ProofResult, merge_results, read_results


def result(client: str, feature: str, version: str = "1", outcome: str = "passed") -> ProofResult:
    return ProofResult(client=client, version=version, feature=feature, result=outcome)


def test_a_run_of_some_tests_keeps_what_others_have_shown(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_results([result("b", "x"), result("a", "y"), result("a", "x")], path)

    merge_results([result("a", "x", version="2", outcome="failed")], path)

    assert read_results(path) == [
        result("a", "x", version="2", outcome="failed"),
        result("a", "y"),
        result("b", "x"),
    ]


def test_a_skipped_test_takes_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_results([result("a", "x")], path)

    merge_results([result("a", "x", outcome="skipped: no jars"), result("b", "x", outcome="skipped: no jars")], path)

    assert read_results(path) == [result("a", "x"), result("b", "x", outcome="skipped: no jars")]


def test_a_run_of_none_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    merge_results([], path)
    assert not path.exists()
    assert read_results(path) == []
