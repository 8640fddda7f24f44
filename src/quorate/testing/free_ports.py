"""Ports that nothing listens on.

Each process has some to itself: tests that run side by side do not take each other's, neither between the moment when a
port is found free and that when a node listens on it, nor while its node is down.
"""

import random
import socket
import tempfile
from collections import deque
from functools import cache
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # No such locks on this system.
    fcntl = None  # type: ignore[assignment]

# Below the range that systems hand to outgoing connections (32768 and up): a port stays free while its node is down,
# and a client that tries again cannot connect to itself.
_PORTS = range(20_000, 32_000)
_PORTS_A_PROCESS = 500
_given_lately: deque[int] = deque(maxlen=_PORTS_A_PROCESS // 2)
_held_locks: list[TextIO] = []


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports, free at this moment, and not given to somebody who has yet to listen on them."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_own_ports())
        if port not in _given_lately and _is_free(port):
            found.append(port)
            _given_lately.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@cache
def _own_ports() -> range:
    """Those of the first lock file that nobody holds. It is held until this process ends."""
    for first in _PORTS[::_PORTS_A_PROCESS] if fcntl is not None else ():
        try:
            lock = (Path(tempfile.gettempdir()) / f"quorate-ports-{first}").open("a")
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            continue
        _held_locks.append(lock)
        return range(first, first + _PORTS_A_PROCESS)
    return _PORTS
