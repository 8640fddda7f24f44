"""Where a broker listens."""

from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError

__all__ = ["MAX_PORT", "Address", "parse_address"]

MAX_PORT = 65535


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``; nothing else, so that a port given twice is noticed."""
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not separator or not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
        raise QuorateError(f"{text!r} is not an address of the form host:port")
    return Address(host, int(port))
