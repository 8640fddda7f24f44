"""What tests prove, and that the page of compatibility says so."""

from pathlib import Path

import pytest

from tests.proofs import (
    BEGIN,
    END,
    ROOT,
    Proof,
    claimed,
    keep_results,
    merged,
    read_results,
    rows_of_page,
    together,
    with_rows,
)


def proof(client: str, feature: str, version: str = "1", result: str = "passed") -> Proof:
    return Proof(client=client, version=version, feature=feature, result=result, test="tests/test_it.py")


def test_the_page_has_a_row_for_every_proof_and_no_other() -> None:
    """If this fails: ``make compat``."""
    rows = rows_of_page((ROOT / "docs/compatibility.md").read_text())
    assert {(row.test, row.feature) for row in rows} == set(claimed())
    assert [row for row in rows if row.result == "failed"] == []


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (["passed", "failed", "passed"], "failed"),
        (["failed", "skipped: why"], "failed"),
        (["skipped: why", "passed", "skipped: why"], "passed"),
        (["skipped: why", "skipped: why"], "skipped: why"),
    ],
)
def test_a_row_passes_when_some_of_its_tests_do_and_none_fails(results: list[str], expected: str) -> None:
    assert together(proof("a", "x", result=each) for each in results) == [proof("a", "x", result=expected)]


def test_a_run_of_some_tests_keeps_what_others_have_shown(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    keep_results([proof("b", "x"), proof("a", "y"), proof("a", "x")], path)

    keep_results([proof("a", "x", version="2", result="failed")], path)

    assert read_results(path) == [proof("a", "x", version="2", result="failed"), proof("a", "y"), proof("b", "x")]


def test_a_skipped_test_takes_nothing_back() -> None:
    skipped = [proof("a", "x", result="skipped: no jars"), proof("b", "x", result="skipped: no jars")]

    assert merged([proof("a", "x")], skipped) == [proof("a", "x"), skipped[1]]


def test_a_run_of_none_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    keep_results([], path)
    assert not path.exists()
    assert read_results(path) == []


def test_rows_come_back_from_the_page_that_they_are_written_to() -> None:
    rows = [proof("Kafka's client", "a, b: c; kill -9", version="4.3.1 on 2"), proof("b", "x", result="failed")]
    page = f"before\n{BEGIN}old\n{END}after\n"

    written = with_rows(page, rows)

    assert rows_of_page(written) == rows
    assert with_rows(written, rows) == written
    assert (written.startswith("before\n"), written.endswith("after\n")) == (True, True)


def test_marks_are_found_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "tests" / "some").mkdir(parents=True)
    (tmp_path / "tests/some/test_it.py").write_text(
        'pytestmark = [pytest.mark.proves("of the module")]\n'
        '@pytest.mark.proves(*CLIENT, "of " "a test")\ndef test(): ...\n'
    )
    file = "tests/some/test_it.py"
    assert set(claimed(tmp_path)) == {(file, "of the module"), (file, "of a test")}
