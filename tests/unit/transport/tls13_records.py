"""Records of TLS 1.3 that Python's ``ssl`` cannot make: those of a client, from the keys in its own log."""

from pathlib import Path
from struct import pack

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_HANDSHAKE, APPLICATION_DATA = 22, 23
#: The other end is to change its keys too, and say so.
_KEY_UPDATE_REQUESTED = b"\x18\0\0\1\1"


class Tls13Records:
    """Of a client that has sent nothing since the handshake, in TLS_AES_256_GCM_SHA384."""

    def __init__(self, key_log: Path) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        (secret,) = [line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0"]
        self._use(bytes.fromhex(secret))

    def record(self, content: bytes, kind: int = APPLICATION_DATA) -> bytes:
        inner = content + bytes([kind])
        head = pack(">BHH", 23, 0x0303, len(inner) + 16)
        nonce = (int.from_bytes(self._iv) ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return head + self._key.encrypt(nonce, inner, head)

    def key_update(self) -> bytes:
        record = self.record(_KEY_UPDATE_REQUESTED, _HANDSHAKE)
        self._use(self._expand("traffic upd", 48))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(self._expand("key", 32))
        self._iv = self._expand("iv", 12)
        self._sequence = 0

    def _expand(self, label: str, size: int) -> bytes:
        named = f"tls13 {label}".encode()
        info = pack(">HB", size, len(named)) + named + b"\0"
        return HKDFExpand(hashes.SHA384(), size, info).derive(self._secret)
