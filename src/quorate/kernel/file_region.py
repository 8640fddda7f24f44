"""A piece of a file that stands for bytes in a reply and is sent by the kernel, without passing through Python."""

from quorate.kernel.disk import DiskFile


class FileRegion:
    """``length`` bytes of ``file`` from ``position``. Has a length like the buffers it stands among."""

    __slots__ = ("_length", "file", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def read(self, length: int) -> bytes:
        """The first bytes of the region."""
        return self.file.read(self.position, min(length, self._length))

    def advance(self, count: int) -> None:
        """Forget the first bytes: they have been sent."""
        self.position += count
        self._length -= count
