"""CRC-32C, which batches have on the wire, and our own files and segments on disks."""

from typing import Final, Protocol

from quorate.kernel.native import native
from quorate.kernel.ports import Buffer


class Crc32c(Protocol):
    def __call__(self, data: Buffer, crc: int = 0, /) -> int:
        """Of ``data`` behind bytes whose checksum is ``crc``."""
        ...


def _fastest() -> Crc32c:
    if native is not None:
        return native.crc32c
    import crc32c as package

    twin: Crc32c = package.crc32c
    return twin


crc32c: Final = _fastest()
