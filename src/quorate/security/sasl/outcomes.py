"""What a SASL mechanism makes of a token: an answer to send, a decision, or work to be done elsewhere first."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.security.principals import KafkaPrincipal

#: What the client is told where nothing else is said; which part was wrong is for the log alone.
INVALID_CREDENTIALS = "Authentication failed: Invalid username or password"


class Challenge(msgspec.Struct, frozen=True):
    """The exchange goes on: the client answers this token with another one."""

    token: bytes


class LoginAccepted(msgspec.Struct, frozen=True, kw_only=True):
    principal: KafkaPrincipal
    #: Sent with the decision; may be empty.
    token: bytes = b""
    #: When the credentials end, in milliseconds since the Unix epoch; None for never.
    expires_ms: int | None = None
    #: Shown by a delegation token: with one nobody gets another one.
    by_token: bool = False


class LoginRefused(msgspec.Struct, frozen=True, kw_only=True):
    #: For this node's log. It says what was wrong, and never what the client sent as a secret.
    reason: str
    #: For the client, one line; None for what the connection says of every failure.
    message: str | None = None


class LoginWork(msgspec.Struct, frozen=True):
    """Too slow for the loop: a worker calls it, and ``Mechanism.resume`` is given what it returned."""

    run: Callable[[], Any]


Outcome = Challenge | LoginAccepted | LoginRefused | LoginWork


class Mechanism(Protocol):
    """The server's side of one exchange. After a decision it is asked nothing more."""

    def answer(self, token: bytes) -> Outcome: ...

    def resume(self, result: Any) -> Outcome:
        """After ``LoginWork``."""
        ...


class SaslLogin(Protocol):
    """The client's side of one exchange: the first token, and an answer to each of the server's until there is none."""

    def first(self) -> bytes: ...

    def answer(self, token: bytes) -> bytes | None:
        """None where the exchange has ended well. Raises ``LoginFailed``."""
        ...


class LoginFailed(QuorateError):
    """The server's message is not what the mechanism allows, or it refuses; says which in one sentence."""
