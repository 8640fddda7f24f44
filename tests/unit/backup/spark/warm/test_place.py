"""The folder of a warm Spark: for its user alone, with one keeper at a time, and cleared after one that was killed."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from quorate.backup.spark.warm.place import PlaceUnusable, WarmPlace, sweep, warm_place, warm_places
from tests.eventually import eventually


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WarmPlace:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = warm_place("one")
    made.make()
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_token_and_folders_are_for_their_owner_alone(place: WarmPlace) -> None:
    umask = os.umask(0)
    try:
        second = warm_place("two")
        second.make()
        second.write_token()
    finally:
        os.umask(umask)

    assert [mode(second.folder.parent), mode(second.folder), mode(second.folder / "token")] == [0o700, 0o700, 0o600]
    assert len(second.token()) == 64
    assert second.write_token() != place.write_token()


def test_folder_that_is_open_to_others_is_not_used(place: WarmPlace) -> None:
    place.folder.parent.chmod(0o755)
    with pytest.raises(PlaceUnusable, match=r"is open to others: chmod 700"):
        place.make()
    assert warm_places() == []


def test_folder_of_another_user_is_not_used(place: WarmPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PlaceUnusable, match="belongs to another user"):
        place.make()


def test_what_is_no_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = warm_place("one")
    place.folder.parent.symlink_to(tmp_path)
    with pytest.raises(PlaceUnusable, match="is no folder"):
        place.make()


def test_one_keeper_at_a_time(place: WarmPlace) -> None:
    other = WarmPlace(place.folder)
    assert place.lock()
    assert not other.lock()
    assert not other.is_empty()

    place.unlock()

    assert other.is_empty()
    assert other.lock()


def test_place_that_was_taken_away_is_another_one(place: WarmPlace) -> None:
    assert place.lock()
    assert place.is_still_there()
    place.remove()
    assert not place.is_still_there()

    other = WarmPlace(place.folder)
    other.make()
    assert other.lock()
    assert not place.is_still_there()


def test_what_a_killed_keeper_left_goes_and_what_is_used_stays(place: WarmPlace) -> None:
    assert place.lock()
    left = warm_place("left")
    left.make()
    assert left.lock()
    left.clear()
    (left.spark_folder / "block").write_bytes(b"data")
    left.unlock()  # As the end of a process does.

    sweep()

    assert not left.folder.exists()
    assert warm_places()[0].folder == place.folder
    assert list(place.folder.parent.iterdir()) == [place.folder]


def test_socket_is_reached_however_deep_its_folder_is(tmp_path: Path) -> None:
    place = WarmPlace(tmp_path / ("d" * 100) / "warm-one")
    place.folder.parent.mkdir(0o700)
    place.make()
    with pytest.raises(OSError):  # noqa: PT011 - the system's words differ
        place.dial(1)
    with place.listen() as listener, place.dial(1) as dialled:
        accepted, _ = listener.accept()
        dialled.sendall(b"x")
        assert accepted.recv(1) == b"x"
        accepted.close()


def test_only_the_process_that_was_noted_is_killed(place: WarmPlace) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        place.note(process.pid, None)
        assert place.keeper_pid() == process.pid
        noted = (place.folder / "processes").read_text()
        # A process with this pid that began at another moment is somebody else's.
        began = noted.partition('"began":"')[2].partition('"')[0]
        (place.folder / "processes").write_text(noted.replace(began, str(int(began) + 1)))
        place.kill()
        assert place.keeper_pid() is None
        assert process.poll() is None

        (place.folder / "processes").write_text(noted)
        place.kill()
        assert eventually(process.poll, "the process to end") == -9
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("content", ["", "{", '{"keeper":{"pid":"x"}}', '{"keeper":{"pid":1,"began":"0"},"java":null}'])
def test_damaged_notes_kill_nobody(place: WarmPlace, content: str) -> None:
    (place.folder / "processes").write_text(content)
    place.kill()
    assert place.keeper_pid() is None
