from pathlib import Path

from quorate.pipeline.class_archive import ClassArchive, cache_folder


def recorded_path(archive: ClassArchive) -> Path:
    """Where the JVM is told to write."""
    option = next(each for each in archive.jvm_options() if each.startswith("-XX:ArchiveClassesAtExit="))
    return Path(option.partition("=")[2])


def test_first_start_records_and_the_next_one_uses_it(tmp_path: Path) -> None:
    first = ClassArchive(tmp_path / "cache", ["java 17"])
    recorded_path(first).write_bytes(b"classes")
    first.keep_recorded()

    second = ClassArchive(tmp_path / "cache", ["java 17"])

    assert f"-XX:SharedArchiveFile={second.path}" in second.jvm_options()
    assert not second.is_recording


def test_other_java_or_spark_has_an_archive_of_its_own(tmp_path: Path) -> None:
    assert ClassArchive(tmp_path, ["java 17"]).path != ClassArchive(tmp_path, ["java 21"]).path


def test_draft_that_the_jvm_did_not_write_is_no_error(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, ["java 17"])
    archive.jvm_options()
    archive.keep_recorded()
    assert list(tmp_path.iterdir()) == []


def test_interrupted_start_leaves_no_draft(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, ["java 17"])
    recorded_path(archive).write_bytes(b"half")
    archive.discard()
    assert list(tmp_path.iterdir()) == []


def test_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    archive = ClassArchive(tmp_path / "cache" / "quorate", ["java 17"])
    assert archive.jvm_options() == []
    assert not archive.is_recording


def test_cache_folder_follows_the_environment(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "quorate"
