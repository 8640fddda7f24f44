"""Sizes as people write them: ``10MB``, ``64 MiB``, ``1500``."""

import re

from quorate.kernel.errors import QuorateError

_DECIMAL = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS = _DECIMAL | _BINARY
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?\s*([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """In bytes. A thousand bytes are a kB, 1024 are a KiB."""
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[3].upper())
    if match is None or unit is None:
        raise QuorateError(f"{text!r} is not a size such as 10MB, 64MiB or 1048576")
    fraction = match[2] or ""
    size_bytes: int = int(match[1] + fraction) * unit // 10 ** len(fraction)
    return size_bytes
