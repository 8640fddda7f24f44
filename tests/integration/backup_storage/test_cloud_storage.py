"""What can go wrong with a bucket, each told in one sentence; and parts that are not left behind."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.backup.errors import ObjectNotFound, StorageError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.objects.cloud_storage import PART_BYTES
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from tests.integration.backup_storage import object_servers
from tests.unit.backup.backup_runs import PartitionLog, run_backup


def write_large(storage: ObjectStorage) -> None:
    upload = storage.open_upload("large")
    try:
        for _ in range(3):
            upload.write([bytes(PART_BYTES)])
        upload.complete()
    finally:
        upload.abort()


ACTIONS: dict[str, Callable[[ObjectStorage], object]] = {
    "reach": lambda storage: storage.check_reachable(),
    "put": lambda storage: storage.put_if_absent("a", b"1"),
    "read": lambda storage: storage.read("a"),
    "range": lambda storage: storage.read_range("a", 0, 1),
    "info": lambda storage: storage.info("a"),
    "list": lambda storage: list(storage.objects()),
    "folders": lambda storage: storage.folders(),
    "upload": write_large,
    "latest": lambda storage: ManifestCatalog(storage, "b").latest(),
    "backup": lambda storage: run_backup(storage, PartitionLog(), "one"),
}


def sentence(action: Callable[[ObjectStorage], object], location: StorageLocation) -> str:
    with pytest.raises(StorageError) as refusal:
        action(open_storage(location))
    assert not isinstance(refusal.value, ObjectNotFound)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("action", [name for name in ACTIONS if name != "info"])
def test_a_wrong_bucket_is_named(moto_endpoint: str, action: str) -> None:
    location = StorageLocation("s3://no-such-bucket/a", moto_endpoint)

    assert f"bucket no-such-bucket does not exist at {moto_endpoint}" in sentence(ACTIONS[action], location)


@pytest.mark.parametrize("action", ["reach", "put", "list", "upload", "backup"])
def test_an_endpoint_that_cannot_be_reached_is_named_within_seconds(action: str) -> None:
    endpoint = f"http://127.0.0.1:{object_servers.free_port()}"
    begun = time.monotonic()

    assert sentence(ACTIONS[action], StorageLocation("s3://bucket/a", endpoint)).endswith(
        f"the storage cannot be reached at {endpoint}"
    )
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("action", ["reach", "put", "upload", "latest", "backup"])
def test_credentials_that_are_not_accepted_are_told(action: str, tmp_path: Path) -> None:
    if object_servers.program("moto_server") is None:
        pytest.skip("moto_server is not installed")
    with object_servers.moto(tmp_path / "log", INITIAL_NO_AUTH_ACTION_COUNT="1") as endpoint:
        location = StorageLocation(f"s3://{object_servers.BUCKET}/a", endpoint)

        assert "access was denied" in sentence(ACTIONS[action], location)


def test_a_storage_that_ignores_conditions_is_refused_before_anything_is_written() -> None:
    with object_servers.forgetful_server() as endpoint:
        storage = open_storage(StorageLocation("s3://bucket/a", endpoint))

        with pytest.raises(StorageError, match="s3://bucket/a does not enforce put-if-absent"):
            ManifestCatalog(storage, "b").probe("one")


def test_plain_http_needs_an_endpoint_that_says_so(moto_endpoint: str) -> None:
    open_storage(StorageLocation(f"s3://{object_servers.BUCKET}/a", moto_endpoint)).check_reachable()


def test_an_upload_that_is_given_up_leaves_no_parts(bucket: StorageLocation) -> None:
    storage = open_storage(bucket)
    assert bucket.endpoint is not None
    before = object_servers.open_multipart_uploads(bucket.endpoint)
    upload = storage.open_upload("a.qseg")
    for _ in range(4):
        upload.write([bytes(PART_BYTES)])
    during = object_servers.open_multipart_uploads(bucket.endpoint)

    upload.abort()

    assert (before, during, object_servers.open_multipart_uploads(bucket.endpoint)) == (0, 1, 0)
