"""What can be wrong with a backup, each told in one sentence."""

from quorate.kernel.errors import QuorateError


class BackupError(QuorateError):
    """Anything that stops a backup, a restore or a verification.

    One line of printable text, whatever names of a store, a config file or a cluster are in it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ConfigError(BackupError):
    """A config file says what cannot be meant."""


class DamagedSegment(BackupError):
    """A segment object is not what its writer wrote; ``place`` says where, ``fault`` says what."""

    def __init__(self, name: str, place: str, fault: str) -> None:
        super().__init__(f"segment {name} is damaged: {place}: {fault}")
        self.name = name
        self.place = place
        self.fault = fault


class BatchTooLarge(BackupError):
    """A batch does not fit into a segment."""


class DamagedManifest(BackupError):
    """A manifest is there and cannot be believed. It is never taken for "no backup yet"."""


class ManifestMissing(BackupError):
    """There is no manifest of that number, and no mark in its place."""


class ManifestPruned(BackupError):
    """A manifest was there and was deleted on purpose."""


class RequirementFailed(BackupError):
    """A commit was made for another manifest than the one that it would follow."""


class CommitConflict(BackupError):
    """Another run has published the manifest that this one wanted to."""


class StorageError(BackupError):
    """The object storage refused or failed."""


class NameRefused(StorageError):
    """The storage cannot have an object of this name, or not there. It says nothing about other objects."""


class ObjectNotFound(StorageError):
    pass


class ObjectExists(StorageError):
    """Put-if-absent found an object of that name."""


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
