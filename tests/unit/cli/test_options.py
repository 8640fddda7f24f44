from pathlib import Path

import pytest

from quorate.cli.options import read_settings_file
from quorate.kernel.errors import QuorateError


def test_a_file_that_is_not_text_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b"\xff\xfen\x00o\x00d\x00e\x00")

    with pytest.raises(QuorateError, match=r"cannot read .*node\.toml: it is not UTF-8 text"):
        read_settings_file(path)


def test_a_folder_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(QuorateError, match="Is a directory"):
        read_settings_file(tmp_path)


def test_the_mark_that_windows_editors_begin_with_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "backup.yaml"
    path.write_bytes(b"\xef\xbb\xbfbackup_id: n\xc3\xa4chtlich\n")

    assert read_settings_file(path) == "backup_id: nächtlich\n"
