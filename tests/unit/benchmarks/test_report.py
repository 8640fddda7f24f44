"""Results are kept beside those of earlier runs."""

from pathlib import Path

import pytest

from benchmarks import report


def test_a_second_run_of_the_same_commit_does_not_take_the_place_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)

    pages = [report.save_page({"run": run}, "2026-01-01-abc", f"run {run}") for run in (1, 2, 3)]

    assert [page.name for page in pages] == ["2026-01-01-abc.md", "2026-01-01-abc-2.md", "2026-01-01-abc-3.md"]
    assert [page.read_text() for page in pages] == ["run 1", "run 2", "run 3"]
    assert [page.with_suffix(".json").read_text() for page in pages] == [
        f'{{\n  "run": {run}\n}}\n' for run in (1, 2, 3)
    ]
