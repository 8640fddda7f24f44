import os
from pathlib import Path

from quorate.backup.spark.session.class_archive import ClassArchive, record_in_background
from quorate.backup.spark.session.launching import cache_folder
from quorate.backup.spark.session.settings import SparkSettings
from tests.eventually import eventually

WEEKS_S = 30 * 24 * 3600


def recorded_path(archive: ClassArchive) -> Path:
    """Where the JVM is told to write."""
    option = next(each for each in archive.recording_options() if each.startswith("-XX:ArchiveClassesAtExit="))
    return Path(option.partition("=")[2])


def test_what_was_recorded_is_used_by_the_next_start(tmp_path: Path) -> None:
    first = ClassArchive(tmp_path / "cache", ["java 17"])
    assert first.jvm_options() == []
    assert first.begin_attempt()
    recorded_path(first).write_bytes(b"classes")
    first.keep()

    second = ClassArchive(tmp_path / "cache", ["java 17"])

    assert f"-XX:SharedArchiveFile={second.path}" in second.jvm_options()
    assert not second.begin_attempt()


def test_classes_that_cannot_be_kept_are_not_tried_for_run_after_run(tmp_path: Path) -> None:
    assert ClassArchive(tmp_path, ["java 17"]).begin_attempt()
    assert not ClassArchive(tmp_path, ["java 17"]).begin_attempt()

    [attempt] = tmp_path.iterdir()
    long_ago = attempt.stat().st_mtime - WEEKS_S
    os.utime(attempt, (long_ago, long_ago))

    assert ClassArchive(tmp_path, ["java 17"]).begin_attempt()


def test_other_java_or_spark_has_an_archive_of_its_own(tmp_path: Path) -> None:
    assert ClassArchive(tmp_path, ["java 17"]).path != ClassArchive(tmp_path, ["java 21"]).path


def test_draft_that_the_jvm_did_not_write_is_no_error(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, ["java 17"])
    archive.keep()
    archive.discard()
    assert list(tmp_path.iterdir()) == []


def test_interrupted_recording_leaves_no_draft(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, ["java 17"])
    recorded_path(archive).write_bytes(b"half")
    archive.discard()
    assert list(tmp_path.iterdir()) == []


def test_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    archive = ClassArchive(tmp_path / "cache" / "quorate", ["java 17"])
    assert archive.jvm_options() == []
    assert not archive.begin_attempt()


def test_recording_holds_no_prompt(tmp_path: Path) -> None:
    """It runs on its own: the fifo lets it end only after ``record_in_background`` has returned."""
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)

    record_in_background(["sh", "-c", f"read line < {gate}; test $(ps -o sid= -p $$) -eq $$ && touch {done}"])

    assert not done.exists()
    gate.write_text("go on\n")
    eventually(done.exists, "the process in the background to end, in a session of its own")


def test_keeping_classes_can_be_switched_off() -> None:
    assert SparkSettings().keeps_classes
    assert not SparkSettings(conf={"spark.quorate.keepClasses": "false"}).keeps_classes


def test_cache_folder_follows_the_environment(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "quorate"
