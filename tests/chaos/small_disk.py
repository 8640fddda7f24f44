"""A small file system of its own for a node's data, which can be filled up. Needs the right to mount."""

import subprocess
from contextlib import suppress
from pathlib import Path

_SIZE_MB = 192
_BALLAST = "ballast"
_CHUNK = bytes(1 << 20)


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        """Raises ``OSError`` where mounting is not allowed."""
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_MB}m", "quorate-chaos", str(folder)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            raise PermissionError(error.stderr.decode().strip()) from None
        self._folder = folder

    def fill(self, *, leave_bytes: int = 0) -> None:
        """To the last byte, whatever the node writes meanwhile; then give back as much as is to be left."""
        with (self._folder / _BALLAST).open("wb", buffering=0) as ballast:
            with suppress(OSError):
                while ballast.write(_CHUNK):
                    pass
            ballast.truncate(max(0, ballast.tell() - leave_bytes))

    def make_room(self) -> None:
        (self._folder / _BALLAST).unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self._folder)], check=True, capture_output=True)
