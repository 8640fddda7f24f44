"""Opens the storage that a URL names: a local folder, or a bucket of a cloud."""

import re
from urllib.parse import unquote, urlsplit

from quorate.backup.errors import StorageError
from quorate.backup.objects.storage import ObjectStorage, ParsedUrl, StorageLocation

_CLOUD_SCHEMES = {"s3": "bucket", "gs": "bucket", "az": "container"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


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
