"""The one exception that a malformed or impossible message gives."""

from quorate.kernel.errors import QuorateError


class ProtocolError(QuorateError):
    """A frame that is not what the protocol allows, or a message that its version cannot carry."""


class TooManyElements(ProtocolError):
    """A message whose arrays have more elements together than its decoder may make."""
