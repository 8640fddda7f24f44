"""Errors of a cloud's client library become one sentence."""

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from quorate.backup.errors import ObjectExists, ObjectNotFound, StorageError
from quorate.backup.objects.cloud_storage import explain
from quorate.backup.objects.opening import parse_url

URL = "s3://bucket/a/object"
S3_ANSWER = (
    "Error performing PUT http://host/bucket/a in 4ms - Server returned non-2xx status code: {status}: "
    '<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}.</Message></Error>\n\nDebug source:\nX {{'
)


def told(error: Exception, url: str = URL, endpoint: str | None = None) -> StorageError:
    return explain(error, "write", url, parse_url(url), endpoint)


def answer(status: str, code: str, message: str) -> str:
    return S3_ANSWER.format(status=status, code=code, message=message)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            FileNotFoundError(answer("404 Not Found", "NoSuchBucket", "The bucket is not there")),
            "cannot write s3://bucket/a/object: bucket bucket does not exist",
        ),
        (
            PermissionDeniedError(answer("403 Forbidden", "AccessDenied", "Access Denied")),
            "cannot write s3://bucket/a/object: access was denied (AccessDenied: Access Denied); "
            "check the credentials and their rights",
        ),
        (
            GenericError("Generic S3 error: Error performing PUT x - HTTP error: error sending request\n\nDebug"),
            "cannot write s3://bucket/a/object: the storage cannot be reached",
        ),
        (
            GenericError("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s\nDebug"),
            "cannot write s3://bucket/a/object: no credentials were found; "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        (
            GenericError(answer("507 Insufficient Storage", "XMinioStorageFull", "Backend has reached its limit")),
            "cannot write s3://bucket/a/object: there is no space left in the storage "
            "(XMinioStorageFull: Backend has reached its limit)",
        ),
        (
            GenericError("Generic S3 error: x - Server returned non-2xx status code: 500 Internal Server Error: \n"),
            "cannot write s3://bucket/a/object: 500 Internal Server Error",
        ),
        (GenericError("something odd - with a reason\nmore"), "cannot write s3://bucket/a/object: with a reason"),
    ],
)
def test_each_trouble_has_its_own_sentence(error: Exception, sentence: str) -> None:
    assert str(told(error)) == sentence


def test_a_missing_bucket_is_not_taken_for_a_missing_object() -> None:
    """Else a wrong bucket would look like a backup that has not begun."""
    no_bucket = FileNotFoundError(answer("404 Not Found", "NoSuchBucket", "x"))
    no_object = FileNotFoundError(answer("404 Not Found", "NoSuchKey", "x"))

    assert not isinstance(told(no_bucket), ObjectNotFound)
    assert isinstance(told(no_object), ObjectNotFound)


def test_an_object_that_exists_is_its_own_error() -> None:
    error = AlreadyExistsError(answer("412 Precondition Failed", "PreconditionFailed", "x"))

    assert isinstance(told(error), ObjectExists)


def test_the_endpoint_is_named_where_one_was_given() -> None:
    error = GenericError("x - HTTP error: error sending request\n")

    assert str(told(error, endpoint="http://localhost:9")).endswith("cannot be reached at http://localhost:9")


def test_an_account_that_was_not_named_is_asked_for() -> None:
    error = ValueError("Generic MicrosoftAzure error: Account must be specified\n\nDebug source:\nX")

    assert str(told(error, "az://box/a")).endswith(
        "no credentials were found; set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    )


def test_azure_calls_it_a_container() -> None:
    error = GenericError(answer("404 Not Found", "ContainerNotFound", "x"))

    assert "container box does not exist" in str(told(error, "az://box/a"))
