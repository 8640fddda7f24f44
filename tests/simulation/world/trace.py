"""What happened in a run, as short lines: two runs of one seed must give the same."""

import os
import sys
from collections import deque
from hashlib import blake2b

from tests.simulation.world.scheduler import Scheduler

#: Shown when a run fails.
_KEPT_LINES = 400


class Trace:
    """A running hash over all lines; the last ones are kept. ``QUORATE_TRACE=1`` prints each."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._hash = blake2b(digest_size=16)
        self._prints = bool(os.environ.get("QUORATE_TRACE"))
        self.count = 0
        self.last_lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def note(self, text: str) -> None:
        line = f"{self._scheduler.now:.6f} {text}"
        self.count += 1
        self._hash.update(line.encode())
        self.last_lines.append(line)
        if self._prints:
            print(line, file=sys.stderr)

    def digest(self) -> str:
        return self._hash.hexdigest()
