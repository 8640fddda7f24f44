"""Turns what a cloud's client library reports, in many lines, into one sentence that says what to do."""

import re

from quorate.backup.errors import ObjectExists, ObjectNotFound, StorageError
from quorate.backup.objects.storage_url import ParsedUrl

_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_NO_SPACE = ("507 Insufficient Storage", "StorageFull", "QuotaExceeded", "no space left")
_NOT_CONNECTED = ("error sending request", "dns error", "tcp connect error", "Connection refused", "timed out")
# Without keys the libraries ask the metadata service of a virtual machine, at an address of its own.
_NO_CREDENTIALS = ("169.254.", "metadata.google.internal", "redential", "Account must be specified")

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def explain(error: Exception, action: str, url: str, parsed: ParsedUrl, endpoint: str | None) -> StorageError:
    """The error to raise instead. ``action`` is what was tried on ``url``: read, write, list, delete or open."""
    text = str(error)
    kind = type(error).__name__
    where = f" at {endpoint}" if endpoint else ""
    tried = f"cannot {action} {url}"
    if any(sign in text for sign in _NO_BUCKET):
        noun = "container" if parsed.scheme == "az" else "bucket"
        return StorageError(f"{tried}: {noun} {parsed.bucket} does not exist{where}")
    if kind == "AlreadyExistsError":
        return ObjectExists(f"{url} exists already")
    if isinstance(error, FileNotFoundError) or kind == "NotFoundError":
        return ObjectNotFound(f"{url} does not exist")
    if any(sign in text for sign in _NO_SPACE):
        return StorageError(f"{tried}: there is no space left in the storage ({_reason(text)})")
    if any(sign in text.partition("Debug source")[0] for sign in _NO_CREDENTIALS):
        return StorageError(f"{tried}: no credentials were found; set {_CREDENTIALS[parsed.scheme]}")
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or "403 Forbidden" in text:
        return StorageError(f"{tried}: access was denied ({_reason(text)}); check the credentials and their rights")
    if any(sign in text for sign in _NOT_CONNECTED):
        return StorageError(f"{tried}: the storage cannot be reached{where}")
    return StorageError(f"{tried}: {_reason(text)}")


def _reason(text: str) -> str:
    """What the server said, or else the first line of what the library says."""
    code, message, status = _CODE.search(text), _MESSAGE.search(text), _STATUS.search(text)
    said = [match[1].strip().rstrip(".") for match in (code, message) if match]
    if said:
        return ": ".join(said)
    if status:
        return status[1].strip()
    first_line = text.partition("\n")[0].strip()
    return first_line.rpartition(" - ")[2] or first_line or "no reason was given"
