"""Spark's loaded classes, kept between runs, so that the JVM starts in half the time (application class data sharing).

The first run that finds no archive records its classes and writes them when its JVM ends; later runs map the file.
Runs that start together each write a draft of their own and the last rename wins: all drafts are equally good. Where
the cache cannot be written, runs start slowly and say nothing. Does I/O.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

_DRAFT_SUFFIX = ".draft"


class ClassArchive:
    """One file, named by everything that its content depends on."""

    def __init__(self, folder: Path, ingredients: list[str]) -> None:
        digest = hashlib.sha256("\n".join(ingredients).encode()).hexdigest()[:16]
        self.path = folder / f"spark-classes-{digest}.jsa"
        self._draft = self.path.with_suffix(f".{os.getpid()}{_DRAFT_SUFFIX}")
        self.is_recording = False

    def jvm_options(self) -> list[str]:
        """Options that use the archive, or that record it; none where neither can be done."""
        if self.path.is_file():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if not self._can_write():
            return []
        self.is_recording = True
        return [f"-XX:ArchiveClassesAtExit={self._draft}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def keep_recorded(self) -> None:
        """Call when the JVM has ended. A draft that is not there, or not whole, is no loss."""
        try:
            self._draft.replace(self.path)
        except OSError:
            self.discard()

    def discard(self) -> None:
        self._draft.unlink(missing_ok=True)

    def _can_write(self) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return False
        return os.access(self.path.parent, os.W_OK)


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "quorate"
