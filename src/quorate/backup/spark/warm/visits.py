"""Looks at the warm Sparks of this user without using them, and ends them. Does I/O."""

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from quorate.backup.spark.warm.messages import ANSWERS, Channel, ChannelLost, Hello, Status, Stop
from quorate.backup.spark.warm.place import WarmPlace, warm_places

_ANSWER_TIMEOUT_S: Final = 3.0


class Visit(NamedTuple):
    place: WarmPlace
    status: Status | None  # None where it does not answer.

    @property
    def memory_bytes(self) -> int:
        """Of all its processes: what is theirs alone, and their shares of the rest. Nothing where nobody says."""
        keeper = self.place.keeper_pid()
        return 0 if keeper is None else sum(_memory_bytes(pid) for pid in (keeper, *_descendants(keeper)))


def visit_all() -> list[Visit]:
    return [Visit(place, _ask(place, stops=False)) for place in warm_places() if not place.is_empty()]


def end(visit: Visit) -> None:
    """By its own hand, or where it does not answer, at once."""
    if _ask(visit.place, stops=True) is None:
        visit.place.kill()


def _ask(place: WarmPlace, *, stops: bool) -> Status | None:
    try:
        connection = place.dial(_ANSWER_TIMEOUT_S)
        with closing(connection):
            channel = Channel(connection, ANSWERS)
            channel.send(Hello(place.token(), None))
            answer = channel.receive(_ANSWER_TIMEOUT_S)
            if stops:
                channel.send(Stop())
    except (OSError, ChannelLost):
        return None
    return answer if isinstance(answer, Status) else None


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *_descendants(int(child))]
    return found


def _memory_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
