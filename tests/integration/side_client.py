"""A client beside an attacker: how long it waits for its small answers, and how the node's memory grows meanwhile."""

import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.integration.wire_client import WireClient

_PAUSE_S = 0.002
_IDLE_CALLS = 100
#: What other work of the machine costs now and then, whatever the node does.
_NOISE_S = 0.005
#: The attacker is a thread of this process, and what it computes must not count.
_SWITCH_INTERVAL_S = 0.0005


class SideClient:
    """Asks for something small all the time, from the start of the block to its end."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        self._client = WireClient(bootstrap, client_id="side")
        self._pid = pid
        self._is_over = False
        #: The longest that an answer took before the block.
        self.idle_worst_s = max(_NOISE_S, *(self._ask() for _ in range(_IDLE_CALLS)))
        self.worst_s = 0.0
        self.answers = 0
        self.duration_s = 0.0
        self.memory_before_bytes = resident_bytes(pid)
        self.memory_peak_bytes = self.memory_before_bytes
        self._thread = threading.Thread(target=self._run)

    @property
    def grown_bytes(self) -> int:
        return self.memory_peak_bytes - self.memory_before_bytes

    @property
    def was_kept_waiting(self) -> bool:
        """Whether an answer took as long as only a held loop explains: far beyond idle, and much of the whole."""
        return self.worst_s > 50 * self.idle_worst_s and self.worst_s > self.duration_s / 4

    def _ask(self) -> float:
        begun = time.monotonic()
        self._client.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
        return time.monotonic() - begun

    def _run(self) -> None:
        while not self._is_over:
            self.worst_s = max(self.worst_s, self._ask())
            self.answers += 1
            self.memory_peak_bytes = max(self.memory_peak_bytes, resident_bytes(self._pid))
            time.sleep(_PAUSE_S)

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        self._switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.duration_s = time.monotonic() - self._begun
        self._is_over = True
        self._thread.join()
        sys.setswitchinterval(self._switch_interval_s)
        self._client.__exit__(kind, error, trace)


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
