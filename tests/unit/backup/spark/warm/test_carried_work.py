"""Work in another process's worker: it sees environment, folder and umask of its own command, and leaves no trace."""

import os
import pickle
from pathlib import Path

import pytest

from quorate.backup.spark.session.tasks import CarriedWork, Outcome, Report, environment_changes, ignore
from quorate.kernel.errors import QuorateError


class Looks:
    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        umask = os.umask(0)
        os.umask(umask)
        if task == b"fail":
            raise QuorateError("as asked")
        seen = [os.environ.get("QT_A"), os.environ.get("QT_B"), os.getcwd(), oct(umask)]
        return Outcome(repr(seen).encode(), 0, 0)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("QT_A", "keeper's")
    monkeypatch.delenv("QT_B", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    return tmp_path


def carried(folder: Path, changes: dict[str, str | None]) -> CarriedWork:
    work = CarriedWork(pickle.dumps(Looks()), changes, str(folder), 0o27)
    again: CarriedWork = pickle.loads(pickle.dumps(work))  # As it travels.
    return again


def seen_here() -> bytes:
    return Looks()(b"look").result


def test_a_task_sees_what_its_command_saw(worker: Path) -> None:
    before = seen_here()

    found = carried(worker / "below", {"QT_A": None, "QT_B": "mine"})(b"look")

    assert found.result == repr([None, "mine", str(worker / "below"), "0o27"]).encode()
    assert seen_here() == before


def test_a_task_that_fails_leaves_no_trace_either(worker: Path) -> None:
    before = seen_here()

    with pytest.raises(QuorateError, match="as asked"):
        carried(worker / "below", {"QT_A": "mine"})(b"fail")

    assert seen_here() == before


def test_a_folder_that_is_gone_does_not_stop_work_that_needs_none(worker: Path) -> None:
    assert str(worker) in carried(worker / "gone", {})(b"look").result.decode()


def test_only_what_differs_is_carried() -> None:
    command, keeper = {"SAME": "1", "MINE": "2", "OTHER": "3"}, {"SAME": "1", "OTHER": "4", "GONE": "5"}
    assert environment_changes(command, keeper) == {"MINE": "2", "OTHER": "3", "GONE": None}
