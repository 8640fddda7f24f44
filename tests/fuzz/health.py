"""How a node is, seen from outside: its memory, threads, sockets and files, and what it has logged."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.peers.quorate_node import QuorateNode

_TROUBLE = re.compile(r"Traceback|\b(ERROR|CRITICAL)\b")
_MOST_CHARS = 6000
#: The time and the level, then the rest of the line.
_LOGGED = re.compile(r"^\S+ \S+ (?P<level>[A-Z]+) (?P<text>.*)$")


class Health(msgspec.Struct, frozen=True, kw_only=True):
    resident_bytes: int
    threads: int
    sockets: int
    #: Files that were deleted, and are still open.
    deleted_files: int

    @classmethod
    def of(cls, node: QuorateNode) -> "Health":
        status = Path(f"/proc/{node.pid}/status").read_text()
        (threads,) = re.findall(r"^Threads:\s+(\d+)$", status, re.MULTILINE)
        targets = list(_open_files(node.pid))
        return cls(
            resident_bytes=node.resident_bytes(),
            threads=int(threads),
            sockets=sum(target.startswith("socket:") for target in targets),
            deleted_files=sum(target.endswith(" (deleted)") for target in targets),
        )


def _open_files(pid: int) -> Iterable[str]:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(entry.path)


class LogWatch:
    """Reads what a node has logged since the last look."""

    def __init__(self, node: QuorateNode) -> None:
        self._node = node
        self._seen_bytes = len(node.log_text().encode())
        #: How often lines above INFO were written; a kind is what a line starts with.
        self.kinds: dict[str, int] = {}
        #: Without a time and a level, and no part of a traceback, whose lines are indented.
        self.broken_lines: list[str] = []

    def troubles(self) -> list[str]:
        """What no client should be able to provoke: lines at ERROR with what follows them, tracebacks above all."""
        entries = self._new_entries()
        for entry in entries:
            self._count(entry)
        return [entry[:_MOST_CHARS] for entry in entries if _TROUBLE.search(entry)]

    def _new_entries(self) -> list[str]:
        """Lines, each with those behind it that have no time and level of their own."""
        new = self._node.log_text().encode()[self._seen_bytes :]
        new = new[: new.rfind(b"\n") + 1]
        self._seen_bytes += len(new)
        entries: list[str] = []
        for line in new.decode().splitlines():
            if _LOGGED.match(line) or not entries:
                entries.append(line)
            else:
                entries[-1] += "\n" + line
                if not line.startswith("    "):
                    self.broken_lines.append(line[:200])
        return entries

    def _count(self, entry: str) -> None:
        found = _LOGGED.match(entry)
        if found is not None and found["level"] != "INFO":
            kind = " ".join(found["text"].split("=")[0].split()[1:-1])
            self.kinds[kind] = self.kinds.get(kind, 0) + 1


def signature(trouble: str) -> str:
    """What two troubles of the same cause have in common: the place that raised, and what."""
    lines = trouble.splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File ")]
    error = lines[-1].split(":")[0] if places else " ".join(lines[0].split("=")[0].split()[2:])
    return f"{error} {places[-1] if places else ''}".strip()
