"""An address that is bound before anybody listens on it.

A node takes its addresses before it joins the cluster, so that one whose port is taken never becomes a member. Clients
must not wait at a node that is not ready, so until then their connections are refused: nothing listens yet.
"""

import errno
import os
import socket
from types import TracebackType
from typing import Self

from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError


class ReservedAddress:
    """A context manager: what was not handed over by ``open`` is given back at the end of the block."""

    def __init__(self, address: Address, purpose: str = "") -> None:
        """``purpose`` completes the sentence "cannot listen on" where it fails, such as "for peers"."""
        self._sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, place in _places(address):
                listener = _new_socket(family, kind, protocol)
                self._sockets.append(listener)
                listener.bind(place)
                # While this is off, Linux lets no other socket have the address, even one that could reuse it.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError as error:
            self.close()
            raise listen_error(address, error, purpose) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> list[socket.socket]:
        """The sockets, to be listened on at once; they are the caller's now."""
        sockets, self._sockets = self._sockets, []
        for listener in sockets:
            # Else connections of an earlier life, which the kernel keeps for a while, would be in the way.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return sockets

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets.clear()


def listen_error(address: Address, error: OSError, purpose: str = "") -> QuorateError:
    what = f"cannot listen {purpose} on {address}" if purpose else f"cannot listen on {address}"
    reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)
    is_taken = error.errno == errno.EADDRINUSE
    return QuorateError(f"{what}: {reason}; {'end what listens there, or ' if is_taken else ''}choose another address")


def _places(address: Address) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))  # A name may be listed twice in a hosts file.


def _new_socket(family: int, kind: int, protocol: int) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return listener
