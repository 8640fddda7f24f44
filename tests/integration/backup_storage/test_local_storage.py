"""A local directory as storage: durable in the right order, and clear about what goes wrong."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quorate.backup.errors import ObjectNotFound, StorageError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from tests.unit.backup.backup_runs import PartitionLog, run_backup


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(root: Path) -> ObjectStorage:
    return open_storage(StorageLocation(f"file://{root}"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synced, renamed and linked, in order, by its last name."""
    made: list[tuple[str, str]] = []
    fsync, rename, link = os.fsync, os.rename, os.link

    def noting_fsync(file: int) -> None:
        made.append(("sync", Path(os.readlink(f"/proc/self/fd/{file}")).name))
        fsync(file)

    def noting_rename(source: str, target: str, **options: Any) -> None:
        made.append(("rename", Path(target).name))
        rename(source, target, **options)

    def noting_link(source: str, target: str, **options: Any) -> None:
        made.append(("link", Path(target).name))
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "rename", noting_rename)
    monkeypatch.setattr(os, "link", noting_link)
    return made


def test_an_object_is_synced_before_it_has_its_name_and_its_folders_after(
    storage: ObjectStorage, tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    upload = storage.open_upload("topics/t/a.qseg")
    upload.write([b"1"])
    upload.complete()

    assert calls == [
        ("sync", tmp_path.name),
        ("sync", "storage"),
        ("sync", "topics"),
        ("sync", "a.qseg.partial"),
        ("rename", "a.qseg"),
        ("sync", "t"),
    ]


def test_folders_above_are_synced_once(storage: ObjectStorage, calls: list[tuple[str, str]]) -> None:
    for number in range(2):
        upload = storage.open_upload(f"topics/t/{number}.qseg")
        upload.complete()

    assert calls.count(("sync", "topics")) == 1
    assert calls.count(("sync", "t")) == 2


def test_folders_that_another_process_made_are_synced_too(
    storage: ObjectStorage, root: Path, calls: list[tuple[str, str]]
) -> None:
    """It may have been killed before it did so itself."""
    (root / "topics/t").mkdir(parents=True)

    storage.open_upload("topics/t/a.qseg").complete()

    assert {("sync", "storage"), ("sync", "topics")} <= set(calls)


def test_a_manifest_is_synced_before_it_is_linked_into_place(
    storage: ObjectStorage, root: Path, calls: list[tuple[str, str]]
) -> None:
    storage.put_if_absent("manifests/000001.json", b"{}")

    (action, name), *after = calls[-3:]
    assert action == "sync"
    assert name.endswith(".partial")
    assert after == [("link", "000001.json"), ("sync", "manifests")]
    assert os.listdir(root / "manifests") == ["000001.json"]


def put(storage: ObjectStorage) -> None:
    storage.put_if_absent("manifests/a", b"1")


def upload(storage: ObjectStorage) -> None:
    upload = storage.open_upload("manifests/a")
    try:
        upload.write([b"1"])
        upload.complete()
    finally:
        upload.abort()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "there is no space left on the device"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "link"])
def test_a_failing_disk_is_told_in_one_sentence_and_nothing_is_left(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch, number: int, reason: str, call: str
) -> None:
    storage.put_if_absent("manifests/first", b"")
    real_open = os.open

    def fail(*args: object, **kwargs: object) -> int:
        raise OSError(number, os.strerror(number))

    def fail_to_open_for_writing(path: str, flags: int, *args: int, **options: Any) -> int:
        return fail() if flags & os.O_WRONLY else real_open(path, flags, *args, **options)

    monkeypatch.setattr(os, call, fail_to_open_for_writing if call == "open" else fail)

    with pytest.raises(StorageError, match=rf"^cannot write file://\S+/manifests/a: {reason}"):
        (put if call == "link" else upload)(storage)

    monkeypatch.undo()
    assert [each.name for each in storage.objects()] == ["manifests/first"]


def test_a_full_disk_during_a_backup_leaves_no_manifest(
    storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog()
    for _ in range(20):
        log.append(5)
    real_write, budget = os.write, [2_000]

    def write(file: int, data: memoryview) -> int:
        if budget[0] <= 0:
            raise OSError(errno.ENOSPC, "full")
        written = real_write(file, data[: max(budget[0], 1)])
        budget[0] -= written
        return written

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageError, match="there is no space left on the device"):
        run_backup(storage, log, "one")
    monkeypatch.undo()

    assert ManifestCatalog(storage, "nightly").latest() is None
    assert run_backup(storage, log, "two").is_complete


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = open_storage(StorageLocation(f"file://{tmp_path}/file/below"))

    with pytest.raises(StorageError, match="a part of the path is not a folder"):
        storage.put_if_absent("a", b"")


def test_a_folder_without_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    storage = open_storage(StorageLocation(f"file://{tmp_path}/storage"))

    with _without_privileges(), pytest.raises(StorageError, match="permission denied"):
        storage.put_if_absent("a", b"")


@contextmanager
def _without_privileges() -> Iterator[None]:
    """Root may write everywhere, so it becomes somebody else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_storage_that_is_not_there_cannot_be_listed(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(f"file://{tmp_path}/nothing"))

    with pytest.raises(StorageError, match="there is no such folder"):
        storage.check_reachable()
    with pytest.raises(ObjectNotFound):
        storage.folders()


def test_what_a_killed_process_left_is_no_object_but_can_be_found(storage: ObjectStorage) -> None:
    upload = storage.open_upload("topics/t/a.qseg")
    upload.write([b"1"])
    del upload

    with pytest.raises(ObjectNotFound):
        storage.read("topics/t/a.qseg")
    assert [each.name for each in storage.objects()] == ["topics/t/a.qseg.partial"]
