"""Where a backup is kept, as a URL, and what such a URL may look like."""

import re
from urllib.parse import unquote, urlsplit

import msgspec

from quorate.backup.errors import StorageError

_CLOUD_SCHEMES = {"s3": "bucket", "gs": "bucket", "az": "container"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
