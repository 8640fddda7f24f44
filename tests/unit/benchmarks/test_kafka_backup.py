"""The peer kafka-backup: only a binary that says it is the one is run, as one command with the settings of the job."""

import stat
from pathlib import Path

import msgspec
import pytest
import yaml

from benchmarks.arguments import parse_arguments
from benchmarks.backup.kafka_backup import back_up
from benchmarks.contenders.jobs import Job
from benchmarks.contenders.kafka_backup import VARIABLE, WrongBinaryError, describe, find_kafka_backup

MANIFEST = {
    "topics": [
        {"partitions": [{"segments": [{"record_count": 3}, {"record_count": 4}]}, {"segments": []}]},
        {"partitions": [{"segments": [{"record_count": 5}]}]},
    ]
}


def script(folder: Path, text: str) -> str:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_option_goes_before_the_variable_and_neither_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_kafka_backup(None) is None
    assert "not measured" in describe(None)
    monkeypatch.setenv(VARIABLE, "/nowhere")
    found = find_kafka_backup(script(tmp_path, "echo kafka-backup 0.17.4"))

    assert found is not None
    assert found.version == "0.17.4"
    assert describe(found).startswith("0.17.4")
    with pytest.raises(WrongBinaryError, match="/nowhere cannot be run"):
        find_kafka_backup(None)


@pytest.mark.parametrize("text", ["echo quorate 1.0", "echo kafka-backup 1.0; exit 2", "exit 0"])
def test_another_program_of_that_name_is_refused_in_one_sentence(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = script(tmp_path, text)
    with pytest.raises(SystemExit):
        parse_arguments(["--kafka-backup", binary])

    assert f"{binary} is not the Rust program kafka-backup" in capsys.readouterr().err


def test_a_backup_is_one_command_whose_manifest_tells_what_it_copied(tmp_path: Path) -> None:
    output, seen = tmp_path / "output", tmp_path / "seen.yaml"
    (output / "benchmark").mkdir(parents=True)
    (output / "benchmark" / "manifest.json").write_bytes(msgspec.json.encode(MANIFEST))
    job = Job(bootstrap="a:1,b:2", topics=("t", "u"), folder=str(output), end_offsets=(7, 5), records=12)

    copied = back_up(script(tmp_path, f'[ "$1 $2" = "backup --config" ] && cp "$3" {seen}'), job)

    assert copied.records == 12
    config = yaml.safe_load(seen.read_text())
    assert config["source"] == {"bootstrap_servers": ["a:1", "b:2"], "topics": {"include": ["t", "u"]}}
    assert config["storage"] == {"backend": "filesystem", "path": str(output)}
    assert config["backup"]["stop_at_current_offsets"] is True


@pytest.mark.parametrize("text", ["0", "-1", "1000", "nan", "much"])
def test_topics_of_an_impossible_size_are_refused_in_one_sentence(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments([f"--topic-gb={text}"])

    assert f"a topic has 0.01 to 100 GB, not '{text}'" in capsys.readouterr().err


def test_sizes_are_numbers() -> None:
    assert parse_arguments(["--topic-gb", "0.1", "1", "4"]).topic_gb == [0.1, 1.0, 4.0]
