"""Ports of this machine: which of them are free, as far as can be told before somebody listens on them."""

import socket
from itertools import chain
from typing import Final

from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError

HOST: Final = "127.0.0.1"
LAST_PORT: Final = 65535
_FIRST_USER_PORT: Final = 1024


def free_port(wanted: int, used: set[int]) -> int:
    """The wanted one, or the next one above it that nobody has; from below where there is none above."""
    candidates = chain(range(wanted, LAST_PORT + 1), range(min(wanted, LAST_PORT), _FIRST_USER_PORT, -1))
    for port in candidates:
        if port not in used and is_free(Address(HOST, port)):
            return port
    raise QuorateError("no port is free on this machine")


def check_free(address: Address, advice: str) -> None:
    """Before anything starts, lest one node that cannot listen leaves the others without it."""
    error = _bind_error(address)
    if error is not None:
        raise QuorateError(f"cannot listen on {address}: {error.strerror}; {advice}")


def is_free(address: Address) -> bool:
    return _bind_error(address) is None


def _bind_error(address: Address) -> OSError | None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            return error
    return None
