"""Whose other end has gone. A loop tells of that only where it reads, and what has to wait is not read from."""

import select
from collections.abc import Iterable
from typing import Final

#: The other end says nothing more. Where the system cannot tell, one that has closed in order is not found.
_SAYS_NO_MORE: Final = getattr(select, "POLLRDHUP", 0)


def departed(filenos: Iterable[int]) -> set[int]:
    """Those of the sockets whose other end has closed or reset the connection. Never blocks."""
    poll = select.poll()
    for fileno in filenos:
        poll.register(fileno, _SAYS_NO_MORE)  # A reset is told in any case.
    return {fileno for fileno, _ in poll.poll(0)}
