"""A host and a port, and their one textual form."""

from functools import lru_cache
from typing import Final

import msgspec

from quorate.kernel.errors import QuorateError

_MAX_PORT: Final = 65535
#: More than a cluster has: its nodes read the same ones with every change of the membership.
_KEPT_ADDRESSES: Final = 4096


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(_KEPT_ADDRESSES)
def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``; nothing else, so that a port given twice is noticed.

    Also an address to listen on: without a host it is every interface, and port 0 is a free port.
    """
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _not_an_address(text)
    if not separator or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > _MAX_PORT:
        raise _not_an_address(text)
    return Address(host, int(port))


def parse_remote_address(text: str) -> Address:
    """An address to connect to: it has a host and a port. Spaces around it, as in lists with commas, are dropped."""
    address = parse_address(text.strip())
    if not address.host or not address.port:
        raise _not_an_address(text)
    return address


def _not_an_address(text: str) -> QuorateError:
    return QuorateError(f"{text!r} is not an address of the form host:port")
