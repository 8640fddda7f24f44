import os
from pathlib import Path

import pytest

from quorate.storage.os_disk import OsDisk

DISK = OsDisk()


def open_paths() -> set[str]:
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return {os.readlink(link) for link in links if os.path.lexists(link)}


def test_appends_of_many_buffers_stand_in_the_file_in_order(tmp_path: Path) -> None:
    file = DISK.open(f"{tmp_path}/log", create=True)

    file.append([b"first", bytearray(b"second"), memoryview(b"third")])
    file.append([b"%d," % number for number in range(3000)])  # More than the kernel takes in one vector.

    expected = b"firstsecondthird" + b"".join(b"%d," % number for number in range(3000))
    assert file.size() == len(expected)
    assert file.read(0, 1 << 20) == expected
    assert file.read(5, 6) == b"second"
    assert (tmp_path / "log").read_bytes() == expected


def test_a_write_that_the_kernel_takes_in_parts_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.open(f"{tmp_path}/log", create=True)
    monkeypatch.setattr("os.writev", lambda fd, buffers: _write_only(fd, b"".join(buffers), 3))

    file.append([b"ab", b"cdef", b"gh"])

    assert file.read(0, 100) == b"abcdefgh"


def test_a_file_stays_readable_after_its_name_is_gone(tmp_path: Path) -> None:
    file = DISK.open(f"{tmp_path}/log", create=True)
    file.append([b"content"])

    DISK.remove(f"{tmp_path}/log")

    assert not (tmp_path / "log").exists()
    assert file.read(0, 100) == b"content"


def test_a_file_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    file = DISK.open(f"{tmp_path}/log", create=True)
    path = f"{tmp_path}/log"
    assert path in open_paths()

    del file

    assert path not in open_paths()


def test_appends_go_to_the_end_after_a_truncation(tmp_path: Path) -> None:
    file = DISK.open(f"{tmp_path}/log", create=True)
    file.append([b"0123456789"])

    file.truncate(4)
    file.append([b"abc"])
    file.sync()

    assert file.read(0, 100) == b"0123abc"


def test_opening_a_missing_file_needs_create(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DISK.open(f"{tmp_path}/log")


def test_replace_puts_the_whole_content_in_place_and_leaves_nothing_else(tmp_path: Path) -> None:
    DISK.replace(f"{tmp_path}/checkpoint", b"old and longer")
    (tmp_path / "checkpoint.tmp").write_bytes(b"left by a crash")

    DISK.replace(f"{tmp_path}/checkpoint", b"new")

    assert (tmp_path / "checkpoint").read_bytes() == b"new"
    assert DISK.list_directory(str(tmp_path)) == ["checkpoint"]


def test_removing_and_listing_what_is_missing_is_no_error(tmp_path: Path) -> None:
    DISK.remove(f"{tmp_path}/missing")
    DISK.remove_tree(f"{tmp_path}/missing")

    assert DISK.list_directory(f"{tmp_path}/missing") == []


def test_folders_are_made_with_their_parents_and_removed_with_their_content(tmp_path: Path) -> None:
    DISK.make_directory(f"{tmp_path}/a/b")
    DISK.make_directory(f"{tmp_path}/a/b")
    DISK.open(f"{tmp_path}/a/b/file", create=True)
    DISK.sync_directory(f"{tmp_path}/a/b")

    DISK.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    assert DISK.list_directory(f"{tmp_path}/c/b") == ["file"]

    DISK.remove_tree(f"{tmp_path}/c")
    assert DISK.list_directory(str(tmp_path)) == []


def _write_only(descriptor: int, data: bytes, count: int) -> int:
    return os.write(descriptor, data[:count])
