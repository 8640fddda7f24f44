"""TLS contexts, made of settings and the files that they name; and when files have changed so that another is due.

Python's ``ssl`` loads keys from files alone. PEM text from settings goes through a file in memory, which has no name.
"""

import hashlib
import os
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.tls_settings import ClientAuth, PemSource, TlsSettings, TlsVersion

_VERSIONS: Final = {
    TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3,
}
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class TlsMaterial(msgspec.Struct, frozen=True, kw_only=True):
    """The PEM texts at one moment, all of them read before any is used. Shown without them."""

    chain: bytes | None
    key: bytes | None
    trust: bytes | None

    def __repr__(self) -> str:
        return "TlsMaterial(...)"

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(repr((self.chain, self.key, self.trust)).encode()).digest()


def read_material(settings: TlsSettings, read: Callable[[str], bytes] | None = None) -> TlsMaterial:
    """Raises QuorateError where a file cannot be read."""
    reading = read or _read

    def text_of(source: PemSource | None) -> bytes | None:
        if source is None or source.path is None:
            return None if source is None or source.text is None else source.text.encode()
        try:
            return reading(source.path)
        except OSError as error:
            raise QuorateError(f"{source.setting}: {source.path} cannot be read: {error.strerror}") from None

    return TlsMaterial(chain=text_of(settings.chain), key=text_of(settings.key), trust=text_of(settings.trust))


def server_context(settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_up(context, settings, material)
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    return context


def client_context(settings: TlsSettings, material: TlsMaterial, *, verify_hostname: bool = True) -> ssl.SSLContext:
    """Of the one who connects. Without trust settings the system's authorities are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify_hostname
    _set_up(context, settings, material)
    if material.trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _set_up(context: ssl.SSLContext, settings: TlsSettings, material: TlsMaterial) -> None:
    context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
    context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
    context.options |= ssl.OP_NO_COMPRESSION
    older = [name for name in settings.ciphers if not name.startswith("TLS_")]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise QuorateError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(older)}") from None
    if material.chain is not None:
        _load_chain(context, settings, material)
    if material.trust is not None:
        _load_trust(context, settings, material.trust)


def _load_chain(context: ssl.SSLContext, settings: TlsSettings, material: TlsMaterial) -> None:
    assert settings.chain is not None
    assert material.chain is not None
    content = material.chain if material.key is None else material.key + b"\n" + material.chain
    password = settings.key_password
    with _MemoryFile(content) as path:
        try:
            # Without a password OpenSSL must not ask for one at the terminal.
            context.load_cert_chain(path, password=password if password is not None else _no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise QuorateError(f"{settings.chain.setting}: {_why_unusable(error, password)}") from None


def _no_password() -> str:
    raise ValueError("its key is encrypted: ssl.key.password is needed")


def _why_unusable(error: Exception, password: str | None) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if password is not None and reason in (None, "BAD_DECRYPT", "PASSWORD_READ", "BAD_PASSWORD_READ"):
        return "the private key cannot be decrypted with ssl.key.password"
    if isinstance(error, ValueError) and not isinstance(error, ssl.SSLError):
        return str(error)
    return "it has not the private key and the certificate chain in PEM, both of them"


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, trust: bytes) -> None:
    assert settings.trust is not None
    try:
        context.load_verify_locations(cadata=trust.decode())
    except (ssl.SSLError, ValueError):
        raise QuorateError(f"{settings.trust.setting}: it has no certificates in PEM") from None
    if not context.cert_store_stats()["x509"]:
        raise QuorateError(f"{settings.trust.setting}: it has no certificates in PEM")


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


class _MemoryFile:
    """A file without a name in any folder, for the time of a ``with``."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._descriptor = -1

    def __enter__(self) -> str:
        self._descriptor = os.memfd_create("pem")
        with os.fdopen(os.dup(self._descriptor), "wb") as file:
            file.write(self._content)
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class FileStamp(msgspec.Struct, frozen=True):
    """What shows that a file is another one, or has other content, without reading it."""

    inode: int
    modified_ns: int
    size: int


def stamp_files(paths: Sequence[str]) -> tuple[FileStamp | None, ...]:
    return tuple(_stamp(path) for path in paths)


def _stamp(path: str) -> FileStamp | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return FileStamp(found.st_ino, found.st_mtime_ns, found.st_size)


class TlsReload:
    """Decides when files are read again, and whether what was read is anything new. It reads nothing itself.

    Files that are being replaced change more than once: they are read when they have stayed the same from one look to
    the next. What could not be used is tried again only once the files have changed again, and is told once.
    """

    def __init__(self, stamps: tuple[FileStamp | None, ...], digest: bytes) -> None:
        self._read_at = stamps
        self._seen = stamps
        self._digest = digest

    def is_due(self, stamps: tuple[FileStamp | None, ...]) -> bool:
        """Whether to read the files now; ``stamps`` are from just before."""
        has_settled = stamps == self._seen
        self._seen = stamps
        if not has_settled or stamps == self._read_at:
            return False
        self._read_at = stamps
        return True

    def is_new(self, digest: bytes) -> bool:
        """Whether content that was read is another one than what is in force."""
        return digest != self._digest

    def in_force(self, digest: bytes) -> None:
        """A context was made of it, and new connections get it."""
        self._digest = digest
