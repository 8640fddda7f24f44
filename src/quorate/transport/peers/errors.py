"""What talking to a peer can end in, besides an answer.

The two kinds must not be mixed up: after ``PeerUnreachable`` the request may be sent elsewhere without a second
thought, after ``OutcomeUnknown`` the peer may have carried it out.
"""

import errno

from quorate.kernel.errors import QuorateError


class PeerError(QuorateError):
    """A request to a peer got no answer."""


class PeerUnreachable(PeerError):
    """The request was certainly not sent."""


class OutcomeUnknown(PeerError):
    """The request was sent, or may have been, and nobody knows what became of it.

    It may have been carried out, or may yet be. Only a request that may be repeated may be asked again.
    """


class PeerTimeout(OutcomeUnknown):
    """No answer in time."""


class PeerProtocolError(Exception):
    """The other end sent what no peer sends; the connection ends."""


def is_refusal(error: Exception) -> bool:
    """Whether dialling met no process that listens, at any address of the host.

    Where a host name has several, the event loop folds their errors into one that keeps only their texts.
    """
    if isinstance(error, ConnectionRefusedError):
        return True
    text = str(error)
    return 0 < text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]")
