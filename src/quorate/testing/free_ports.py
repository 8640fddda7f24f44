"""Ports that nothing listens on."""

import random
import socket
from contextlib import ExitStack

# Below the range that systems hand to outgoing connections (32768 and up): a port stays free while its node is down,
# and a client that tries again cannot connect to itself.
_PORTS = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports, free at this moment."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.choice(_PORTS)
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
