"""The real disk without waiting for it: what a test writes need not survive a power cut."""

from typing import ClassVar

from quorate.storage.os_disk import OsDisk, OsFile


class UnsyncedFile(OsFile):
    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedDisk(OsDisk):
    __slots__ = ()

    _file_type: ClassVar[type[OsFile]] = UnsyncedFile

    def sync_directory(self, path: str) -> None:
        pass
