"""What a request to a peer can end in, besides an answer. Pure.

The two kinds must not be mixed up: after ``PeerUnreachable`` the request may be sent elsewhere without a second
thought, after ``OutcomeUnknown`` the peer may have carried it out.
"""

from quorate.kernel.errors import QuorateError


class PeerError(QuorateError):
    """A request to a peer got no answer."""


class PeerUnreachable(PeerError):
    """The request was certainly not sent."""


class OutcomeUnknown(PeerError):
    """The request was sent, or may have been, and nobody knows what became of it."""


class PeerTimeout(OutcomeUnknown):
    """No answer in time."""


class PeerProtocolError(Exception):
    """The other end sent what no peer sends; the connection ends."""
