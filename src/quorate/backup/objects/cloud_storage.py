"""Object storage in a bucket: S3 and what speaks its protocol, Google Cloud Storage, Azure. Built on obstore.

Credentials come from the environment, as each cloud's own tools read them. Large objects go up in parts, and an upload
that is given up is aborted so that its parts cost nothing. What a cloud's client library reports, in many lines,
becomes one sentence that says what to do.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from quorate.backup.errors import ObjectExists, ObjectNotFound, StorageError
from quorate.backup.objects.storage import (
    MAX_WHOLE_OBJECT_BYTES,
    ObjectInfo,
    ParsedUrl,
    StorageLocation,
    object_name_parts,
)
from quorate.kernel.ports import Buffer

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

PART_BYTES = 8 * 1024 * 1024
PARTS_IN_FLIGHT = 2  # Together with the part that is gathered: under 32 MB for a task.

_RETRIES: "RetryConfig" = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}

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


class CloudStorage:
    def __init__(self, location: StorageLocation, parsed: ParsedUrl) -> None:
        self.location = location
        self._parsed = parsed
        try:
            self.store = _open_store(location, parsed)
        except (BaseError, ValueError) as error:
            raise explain(error, "open", location.url, parsed, location.endpoint) from None

    def __reduce__(self) -> tuple[object, ...]:
        return CloudStorage, (self.location, self._parsed)

    def url_of(self, name: str) -> str:
        return f"{self.location.url.rstrip('/')}/{name}" if name else self.location.url

    def check_reachable(self) -> None:
        with self.errors_told("list", ""):
            next(iter(obstore.list(self.store, chunk_size=1)), None)

    def put_if_absent(self, name: str, content: bytes) -> None:
        with self.errors_told("write", name):
            obstore.put(self.store, _checked(name), content, mode="create")

    def replace(self, name: str, content: bytes) -> None:
        with self.errors_told("write", name):
            obstore.put(self.store, _checked(name), content, mode="overwrite")

    def open_upload(self, name: str) -> "CloudUpload":
        return CloudUpload(self, name)

    def read(self, name: str) -> bytes:
        with self.errors_told("read", name):
            found = obstore.get(self.store, _checked(name))
            if found.meta["size"] > MAX_WHOLE_OBJECT_BYTES:
                raise StorageError(
                    f"{self.url_of(name)} has {found.meta['size']} bytes, more than any object of its kind"
                )
            return bytes(found.bytes())

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        if length == 0:
            return b""
        with self.errors_told("read", name):
            return memoryview(obstore.get_range(self.store, _checked(name), start=position, length=length))

    def info(self, name: str) -> ObjectInfo:
        with self.errors_told("read", name):
            return _info(obstore.head(self.store, _checked(name)))

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self.errors_told("list", prefix):
            for chunk in obstore.list(self.store, prefix or None):
                for meta in chunk:
                    yield _info(meta)

    def folders(self) -> list[str]:
        with self.errors_told("list", ""):
            result = obstore.list_with_delimiter(self.store)
            return sorted(folder.strip("/").rpartition("/")[2] for folder in result["common_prefixes"])

    def delete(self, name: str) -> None:
        with self.errors_told("delete", name), contextlib.suppress(FileNotFoundError):
            obstore.delete(self.store, _checked(name))

    @contextmanager
    def errors_told(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise explain(error, action, self.url_of(name), self._parsed, self.location.endpoint) from None


class CloudUpload:
    def __init__(self, storage: CloudStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._writer = obstore.open_writer(
            storage.store, _checked(name), buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT
        )
        self._ended = False

    def write(self, pieces: Iterable[Buffer]) -> None:
        with self._storage.errors_told("write", self._name):
            for piece in pieces:
                # The writer keeps what it is given until the part is sent; the caller may change it before that.
                self._writer.write(piece if isinstance(piece, bytes) else bytes(piece))

    def complete(self) -> None:
        with self._storage.errors_told("write", self._name):
            self._writer.close()
        self._ended = True

    def abort(self) -> None:
        if self._ended:
            return
        self._ended = True
        # Left with an exception, the writer aborts its multipart upload; closed, it would complete it.
        with contextlib.suppress(Exception):
            self._writer.__exit__(InterruptedError, InterruptedError("given up"), None)


def _open_store(location: StorageLocation, parsed: ParsedUrl) -> "ObjectStore":
    endpoint = location.endpoint
    prefix = parsed.path or None
    options: ClientConfig = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=5)}
    if endpoint is not None and endpoint.startswith("http://"):
        options["allow_http"] = True
    if parsed.scheme == "s3":
        if endpoint is None:
            return S3Store(parsed.bucket, prefix=prefix, client_options=options, retry_config=_RETRIES)
        return S3Store(parsed.bucket, prefix=prefix, endpoint=endpoint, client_options=options, retry_config=_RETRIES)
    if parsed.scheme == "gs":
        if endpoint is None:
            return GCSStore(parsed.bucket, prefix=prefix, client_options=options, retry_config=_RETRIES)
        return GCSStore(parsed.bucket, prefix=prefix, base_url=endpoint, client_options=options, retry_config=_RETRIES)
    if endpoint is None:
        return AzureStore(parsed.bucket, prefix=prefix, client_options=options, retry_config=_RETRIES)
    return AzureStore(parsed.bucket, prefix=prefix, endpoint=endpoint, client_options=options, retry_config=_RETRIES)


def _checked(name: str) -> str:
    object_name_parts(name)
    return name


def _info(meta: "ObjectMeta") -> ObjectInfo:
    return ObjectInfo(
        name=meta["path"], size_bytes=meta["size"], modified_ms=int(meta["last_modified"].timestamp() * 1000)
    )


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
