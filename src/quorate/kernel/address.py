"""A host and a port, and their one textual form."""

import msgspec

from quorate.kernel.errors import QuorateError


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``; nothing else, so that a port given twice is noticed."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise QuorateError(f"{text!r} is not an address of the form host:port")
    if not separator or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise QuorateError(f"{text!r} is not an address of the form host:port")
    return Address(host, int(port))
