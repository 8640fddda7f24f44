"""A local storage never leaves its root, whatever names it is asked for and whatever somebody has put inside."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.backup.errors import NameRefused, ObjectNotFound, StorageError
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import MAX_WHOLE_OBJECT_BYTES, ObjectStorage, StorageLocation

OUTSIDE = b"somebody else's"

LEAVING_NAMES = ["../outside", "a/../../outside", "..", "/etc/passwd", "a//b", "", ".", "a/./b", "a/", "a\0b", "a\nb"]

CALLS: dict[str, Callable[[ObjectStorage, str], object]] = {
    "read": lambda storage, name: storage.read(name),
    "read_range": lambda storage, name: storage.read_range(name, 0, 10),
    "info": lambda storage, name: storage.info(name),
    "delete": lambda storage, name: storage.delete(name),
    "put_if_absent": lambda storage, name: storage.put_if_absent(name, b"x"),
    "replace": lambda storage, name: storage.replace(name, b"x"),
    "open_upload": lambda storage, name: storage.open_upload(name).complete(),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_bytes(OUTSIDE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").write_bytes(OUTSIDE)
    (tmp_path / "storage").mkdir()
    return tmp_path / "storage"


@pytest.fixture
def storage(root: Path) -> ObjectStorage:
    return open_storage(StorageLocation(f"file://{root}"))


def assert_outside_is_untouched(root: Path) -> None:
    outside = root.parent
    assert sorted(os.listdir(outside)) == ["folder", "outside", "storage"]
    assert (outside / "outside").read_bytes() == OUTSIDE
    assert os.listdir(outside / "folder") == ["inner"]
    assert (outside / "folder" / "inner").read_bytes() == OUTSIDE


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", LEAVING_NAMES)
def test_a_name_that_leads_out_of_the_root_is_refused(storage: ObjectStorage, root: Path, call: str, name: str) -> None:
    with pytest.raises(NameRefused, match=r"^[^\n]+cannot be the name of an object[^\n]+$"):
        CALLS[call](storage, name)
    assert_outside_is_untouched(root)


@pytest.mark.parametrize("call", CALLS)
def test_a_link_in_the_place_of_a_folder_is_not_followed(storage: ObjectStorage, root: Path, call: str) -> None:
    (root / "topics").symlink_to("../folder")

    with pytest.raises(NameRefused, match="symbolic link"):
        CALLS[call](storage, "topics/inner")
    assert_outside_is_untouched(root)


@pytest.mark.parametrize("call", ["read", "read_range", "info"])
def test_a_link_in_the_place_of_an_object_is_not_read(storage: ObjectStorage, root: Path, call: str) -> None:
    (root / "object").symlink_to("../outside")

    with pytest.raises(NameRefused, match=r"symbolic link|not a regular file"):
        CALLS[call](storage, "object")


@pytest.mark.parametrize("call", ["replace", "open_upload", "delete"])
def test_a_link_in_the_place_of_an_object_is_replaced_or_deleted_itself(
    storage: ObjectStorage, root: Path, call: str
) -> None:
    (root / "object").symlink_to("../outside")

    CALLS[call](storage, "object")

    assert not (root / "object").is_symlink()
    assert_outside_is_untouched(root)


def test_links_are_not_listed_and_what_is_behind_them_is_not_either(storage: ObjectStorage, root: Path) -> None:
    storage.put_if_absent("a/b", b"")
    (root / "a" / "link").symlink_to("../../outside")
    (root / "a" / "folder").symlink_to("../../folder")
    (root / "folder").symlink_to("../folder")

    assert [each.name for each in storage.objects()] == ["a/b"]
    assert storage.folders() == ["a"]
    with pytest.raises(NameRefused, match="symbolic link"):
        list(storage.objects("folder/"))


def test_a_backups_folder_that_is_a_link_is_refused_and_a_root_that_is_one_is_not(root: Path) -> None:
    """The root is what the user named, so it is followed. What is inside may come from anybody."""
    (root / "nightly").symlink_to("../folder")
    below = open_storage(StorageLocation(f"file://{root}").below("nightly"))
    for call in CALLS.values():
        with pytest.raises(NameRefused, match="symbolic link"):
            call(below, "inner")
    with pytest.raises(NameRefused, match="symbolic link"):
        list(below.objects())

    linked_root = open_storage(StorageLocation(f"file://{root}/nightly"))
    assert linked_root.read("inner") == OUTSIDE
    assert_outside_is_untouched(root)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_object_is_not_taken_for_one_that_another_run_was_faster_to_put(
    storage: ObjectStorage, root: Path, kind: str
) -> None:
    """A hold is put again until it can be read: that went on for ever."""
    if kind == "link":
        (root / "object").symlink_to("nothing")
    elif kind == "pipe":
        os.mkfifo(root / "object")
    else:
        (root / "object").mkdir()

    with pytest.raises(NameRefused, match="not a regular file"):
        storage.put_if_absent("object", b"1")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("call", ["read", "read_range", "info"])
def test_a_pipe_is_no_object_and_nobody_waits_for_its_writer(storage: ObjectStorage, root: Path, call: str) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(NameRefused, match="not a regular file"):
        CALLS[call](storage, "pipe")
    assert list(storage.objects()) == []
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_an_object_that_is_read_whole_has_a_largest_size(storage: ObjectStorage, root: Path) -> None:
    """A file of holes costs its owner nothing, and its reader all of the memory."""
    with open(root / "large", "wb") as file:
        file.truncate(MAX_WHOLE_OBJECT_BYTES + 1)

    with pytest.raises(StorageError, match=r"more than any object of its kind"):
        storage.read("large")


def test_folders_are_followed_down_to_a_depth_that_no_object_has(storage: ObjectStorage, root: Path) -> None:
    folder = root
    for _ in range(200):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "deep").write_bytes(b"")
    storage.put_if_absent("topics/t~id/0/segment", b"")

    assert [each.name for each in storage.objects()] == ["topics/t~id/0/segment"]


def test_a_file_whose_name_is_not_text_is_no_object(storage: ObjectStorage, root: Path) -> None:
    (root / "a").mkdir()
    with open(os.fsencode(root) + b"/a/\xff\x1b[2J", "wb"):
        pass
    os.mkdir(os.fsencode(root) + b"/\xfe")

    assert list(storage.objects()) == []
    assert storage.folders() == ["a"]


def test_a_failed_upload_leaves_no_folder_open(storage: ObjectStorage, root: Path) -> None:
    (root / "topics").write_bytes(b"a file in the place of a folder")
    storage.put_if_absent("first", b"")
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(10):
        with pytest.raises(StorageError):
            storage.open_upload("topics/a")
        with pytest.raises(ObjectNotFound):
            storage.read("none/a")
        upload = storage.open_upload("b")
        upload.abort()
        storage.replace("c", b"")
    assert len(os.listdir("/proc/self/fd")) == before
