"""What a storage URL may look like, and what is said of one that may not be used."""

import pickle

import pytest

from quorate.backup.errors import StorageError
from quorate.backup.objects.opening import open_storage, parse_url
from quorate.backup.objects.storage import ParsedUrl, StorageLocation


@pytest.mark.parametrize(
    ("url", "scheme", "bucket", "path"),
    [
        ("file:///var/backups", "file", "", "/var/backups"),
        ("file:///var/my%20backups/", "file", "", "/var/my backups"),
        ("file://localhost/var", "file", "", "/var"),
        ("s3://bucket", "s3", "bucket", ""),
        ("s3://bucket/", "s3", "bucket", ""),
        ("s3://my-bucket.eu/a/b/", "s3", "my-bucket.eu", "a/b"),
        ("gs://bucket/a", "gs", "bucket", "a"),
        ("az://container/a", "az", "container", "a"),
    ],
)
def test_urls_that_are_understood(url: str, scheme: str, bucket: str, path: str) -> None:
    assert parse_url(url) == ParsedUrl(scheme=scheme, bucket=bucket, path=path)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("/var/backups", "has no scheme: write file:///var/backups"),
        ("backups", "has no scheme"),
        ("file://var/backups", "names the host 'var'"),
        ("file:backups", "has no absolute path"),
        ("file:///a/../b", r"may not contain '\.\.'"),
        ("s3://", "names no bucket: write s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket"),
        ("s3:bucket", "names no bucket"),
        ("az://", "names no container"),
        ("s3://key:secret@bucket/a", "holds credentials"),
        ("s3://bucket/a?x=1", "is not of the form"),
        ("s3://bucket/../a", "may not contain"),
        ("ftp://host/a", "unknown scheme: use file, s3, gs or az"),
        ("S3://bucket", "unknown scheme"),
    ],
)
def test_urls_that_are_refused_in_one_sentence(url: str, complaint: str) -> None:
    with pytest.raises(StorageError, match=complaint) as refusal:
        parse_url(url)
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_location_below_another_keeps_the_endpoint() -> None:
    location = StorageLocation("s3://bucket/a/", "http://localhost:1").below("nightly")

    assert (location.url, location.endpoint) == ("s3://bucket/a/nightly", "http://localhost:1")


def test_s3_is_never_written_to_a_local_folder_of_that_name() -> None:
    storage = open_storage(StorageLocation("s3://bucket/a", "http://127.0.0.1:1"))

    assert type(storage).__name__ == "CloudStorage"


@pytest.mark.parametrize("url", ["file:///var/backups", "s3://bucket/a"])
def test_a_storage_travels_as_its_location_and_without_credentials(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-mine")
    storage = open_storage(StorageLocation(url))

    travelling = pickle.dumps(storage)

    assert b"of-mine" not in travelling
    assert pickle.loads(travelling).location == storage.location
