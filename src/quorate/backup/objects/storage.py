"""The object storage port: where a storage is, and what can be done with the objects in it.

Objects are whole or absent: a reader never sees a part of one. What a call has stored when it returns is durable.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from quorate.backup.errors import NameRefused
from quorate.kernel.ports import Buffer

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
