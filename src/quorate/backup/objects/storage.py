"""The object storage port, the URL that says where a storage is, and how to open what it names.

Objects are whole or absent: a reader never sees a part of one. What a call has stored when it returns is durable.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from quorate.backup.errors import NameRefused, StorageError
from quorate.kernel.ports import Buffer

_CLOUD_SCHEMES = {"s3": "bucket", "gs": "bucket", "az": "container"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: An object that is read whole is no larger: manifests, decisions, plans, maps. Segments are read in ranges.
MAX_WHOLE_OBJECT_BYTES = 512 * 1024 * 1024


class StorageLocation(msgspec.Struct, frozen=True):
    """All that a task needs to open the storage. Credentials are not in it: they come from the environment."""

    url: str
    endpoint: str | None = None
    root_url: str | None = None  # The part of the URL that the user named, where it is not all of it.

    def below(self, folder: str) -> "StorageLocation":
        return StorageLocation(f"{self.url.rstrip('/')}/{folder}", self.endpoint, self.root_url or self.url)


class ParsedUrl(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str  # file, s3, gs or az.
    bucket: str  # Empty for files.
    path: str  # For files absolute; otherwise the prefix inside the bucket, without slashes at its ends.


def parse_url(url: str) -> ParsedUrl:
    """Take a storage URL apart; ``StorageError`` says what is wrong with it."""
    scheme, separator, rest = url.partition(":")
    if not separator:
        hint = f": write file://{url}" if url.startswith("/") else ""
        raise StorageError(f"storage URL {url!r} has no scheme{hint}")
    if scheme == "file":
        return ParsedUrl(scheme=scheme, bucket="", path=_file_path(url))
    if scheme not in _CLOUD_SCHEMES:
        raise StorageError(f"storage URL {url!r} has an unknown scheme: use file, s3, gs or az")
    kind = _CLOUD_SCHEMES[scheme]
    parts = urlsplit(url)
    if not rest.startswith("//") or not parts.netloc:
        raise StorageError(f"storage URL {url!r} names no {kind}: write {scheme}://{kind}/prefix")
    if "@" in parts.netloc:
        raise StorageError(f"storage URL of {scheme} holds credentials: give them in the environment instead")
    if parts.query or parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise StorageError(f"storage URL {url!r} is not of the form {scheme}://{kind}/prefix")
    return ParsedUrl(scheme=scheme, bucket=parts.netloc, path=_checked_path(url, parts.path.strip("/")))


def _file_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StorageError(f"storage URL {url!r} names the host {parts.netloc!r}: write file:///absolute/path")
    if not parts.path.startswith("/"):
        raise StorageError(f"storage URL {url!r} has no absolute path: write file:///absolute/path")
    return _checked_path(url, unquote(parts.path)).rstrip("/") or "/"


def _checked_path(url: str, path: str) -> str:
    if ".." in path.split("/"):
        raise StorageError(f"storage URL {url!r} may not contain '..'")
    return path


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    modified_ms: int


class Upload(Protocol):
    """An object that is being written. It appears under its name when it is complete, and not before."""

    def write(self, pieces: Iterable[Buffer]) -> None:
        """Take the next bytes. The buffers may be used again when this returns."""
        ...

    def complete(self) -> None: ...

    def abort(self) -> None:
        """Leave nothing behind. Never fails; allowed at any time, also after a failed ``complete``."""
        ...


class ObjectStorage(Protocol):
    """Names are relative to the location, and none leads out of it (``object_name_parts``).

    Every failure is a ``StorageError`` with one clear sentence.
    """

    @property
    def location(self) -> StorageLocation: ...

    def url_of(self, name: str) -> str: ...

    def check_reachable(self) -> None:
        """Raise unless the storage is there and may be listed."""
        ...

    def put_if_absent(self, name: str, content: bytes) -> None:
        """Store a small object; ``ObjectExists`` where there is one of that name."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Store a small object in place of whatever is there: at every moment one of the two is."""
        ...

    def open_upload(self, name: str) -> Upload: ...

    def read(self, name: str) -> bytes:
        """All of an object; ``ObjectNotFound`` where there is none. Not for segments, which may be larger than that."""
        ...

    def read_range(self, name: str, position: int, length: int) -> Buffer:
        """Exactly ``length`` bytes, or fewer where the object ends."""
        ...

    def info(self, name: str) -> ObjectInfo: ...

    def objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below a folder, named with a slash at its end; of the whole location where it is empty."""
        ...

    def folders(self) -> list[str]:
        """Names of the folders right below the location."""
        ...

    def delete(self, name: str) -> None:
        """A missing object is not an error."""
        ...


def open_storage(location: StorageLocation) -> ObjectStorage:
    """Open what the location names. Nothing is asked of the storage yet."""
    parsed = parse_url(location.url)
    if parsed.scheme == "file":
        from quorate.backup.objects.local_storage import LocalStorage

        root = parsed.path if location.root_url is None else parse_url(location.root_url).path
        return LocalStorage(location, root, [part for part in parsed.path[len(root) :].split("/") if part])
    # Imported late: loading it costs memory that a backup into a local directory can do without.
    from quorate.backup.objects.cloud_storage import CloudStorage

    return CloudStorage(location, parsed)


def object_name_parts(name: str) -> list[str]:
    """What stands between the slashes of an object's name; ``NameRefused`` unless it names something below a folder."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise NameRefused(f"{name!r} cannot be the name of an object: it does not name one below a storage's root")
    return parts


class StoredObject:
    """An object as a segment reader wants it."""

    def __init__(self, storage: ObjectStorage, name: str, size_bytes: int | None = None) -> None:
        self._storage = storage
        self.name = name
        self.size_bytes = storage.info(name).size_bytes if size_bytes is None else size_bytes

    def read(self, position: int, length: int) -> Buffer:
        return self._storage.read_range(self.name, position, length)
