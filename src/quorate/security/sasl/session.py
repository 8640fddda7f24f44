"""The authentication of one connection: SaslHandshake 0 to 1, SaslAuthenticate 0 to 2, and again before it expires.

The shell asks ``judge`` about every request before it decodes it, gives what belongs here to the session, and carries
out the step that comes back. A failure is answered late (``connection.failed.authentication.delay.ms``), with one line
that says what Apache Kafka says, and ends the connection.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

import msgspec

from quorate.kernel.errors import ErrorCode, clip
from quorate.protocol.apis import ApiKey
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeResponse
from quorate.protocol.schema import Response
from quorate.security.principals import KafkaPrincipal
from quorate.security.sasl.outcomes import Challenge, LoginAccepted, LoginRefused, LoginWork, Mechanism, Outcome

DEFAULT_MAX_RECEIVE_BYTES: Final = 524_288
DEFAULT_FAILURE_DELAY_MS: Final = 100
#: From this version of the handshake on, tokens come in requests and not as bare frames.
_FRAMED_FROM: Final = 1
#: A client that authenticates again sooner does not do it because it has to.
_MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1_000
_MAX_REASON_CHARACTERS: Final = 300


class SaslRules(msgspec.Struct, frozen=True, kw_only=True):
    """Of one listener."""

    mechanisms: tuple[str, ...]
    #: ``connections.max.reauth.ms`` of the mechanisms that have one; none means that a session does not end.
    max_reauthentication_ms: Mapping[str, int] = {}
    #: ``sasl.server.max.receive.size``: of a frame, while nobody has shown who they are.
    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES
    failure_delay_ms: int = DEFAULT_FAILURE_DELAY_MS


class SaslAdmission(Enum):
    #: It goes to its handler.
    SERVE = auto()
    #: It is the session's: ``handshake`` or ``authenticate``.
    AUTHENTICATE = auto()
    #: Its answer is ILLEGAL_SASL_STATE, and the connection ends.
    REFUSE = auto()
    #: The connection ends without an answer.
    END = auto()


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The connection is to be closed. With a delay its answer, if there is one, is held back as long."""

    reason: str
    delay_ms: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell has to do, in this order: the work, or the reply and the ending."""

    #: To be given to a worker, and its result to ``SaslSession.resume``. Until then nothing is read.
    work: LoginWork | None = None
    #: Bytes are a token that goes out as a bare frame.
    reply: Response | bytes | None = None
    #: Whom the connection has shown to be, with this very step.
    authenticated: KafkaPrincipal | None = None
    ending: Ending | None = None


class _State(Enum):
    START = auto()
    #: The client has read which versions there are; the only thing left is a handshake.
    VERSIONS_TOLD = auto()
    EXCHANGE = auto()
    AUTHENTICATED = auto()
    ENDED = auto()


class SaslSession:
    def __init__(self, rules: SaslRules, new_mechanism: Callable[[str], Mechanism]) -> None:
        self._rules = rules
        self._new_mechanism = new_mechanism
        self._state = _State.START
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""
        #: That of the session before, while it is renewed.
        self._former_mechanism_name: str | None = None
        self._is_framed = False
        self._reauthentication_began_ms: int | None = None
        #: The last one that was shown; None before the first time.
        self.principal: KafkaPrincipal | None = None
        self.by_token = False
        #: Requests after it end the connection, but for a handshake that begins the next session.
        self.expires_ms: int | None = None

    @property
    def max_frame_bytes(self) -> int | None:
        """None where the listener's own limit holds."""
        return None if self._state is _State.AUTHENTICATED else self._rules.max_receive_bytes

    @property
    def mechanism_name(self) -> str:
        """That the client has chosen last; empty before it has."""
        return self._mechanism_name

    @property
    def takes_bare_tokens(self) -> bool:
        """Whether the next frame is a token and no request."""
        return self._state is _State.EXCHANGE and not self._is_framed

    @property
    def wants_keys(self) -> bool:
        """Whether a token was signed with a key that is not known here (``BearerServer.wants_keys``)."""
        return bool(getattr(self._mechanism, "wants_keys", False))

    def judge(self, api_key: int, now_ms: int) -> SaslAdmission:
        match self._state:
            case _State.START | _State.VERSIONS_TOLD:
                if api_key == ApiKey.SASL_HANDSHAKE:
                    return SaslAdmission.AUTHENTICATE
                is_first = api_key == ApiKey.API_VERSIONS and self._state is _State.START
                return SaslAdmission.SERVE if is_first else SaslAdmission.END
            case _State.EXCHANGE:
                return SaslAdmission.AUTHENTICATE if api_key == ApiKey.SASL_AUTHENTICATE else SaslAdmission.REFUSE
            case _State.AUTHENTICATED:
                if api_key == ApiKey.SASL_HANDSHAKE and self._may_reauthenticate(now_ms):
                    return SaslAdmission.AUTHENTICATE
                if self.expires_ms is not None and now_ms >= self.expires_ms:
                    return SaslAdmission.END
                is_late = api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
                return SaslAdmission.AUTHENTICATE if is_late else SaslAdmission.SERVE
            case _:
                return SaslAdmission.END

    def versions_told(self) -> None:
        """ApiVersions was answered without an error."""
        if self._state is _State.START:
            self._state = _State.VERSIONS_TOLD

    def handshake(self, mechanism: str, version: int, now_ms: int) -> Step:
        if self._state is _State.AUTHENTICATED:
            if not self._may_reauthenticate(now_ms):
                return Step(reply=illegal_handshake())
            self._reauthentication_began_ms = now_ms
            self._former_mechanism_name = self._mechanism_name
        if mechanism not in self._rules.mechanisms:
            refused = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=self._rules.mechanisms
            )
            # What the client wrote is not repeated: it may be anything.
            return self._fail("the client asks for a mechanism that is not enabled", refused)
        self._is_framed = version >= _FRAMED_FROM
        self._mechanism_name = mechanism
        self._mechanism = self._new_mechanism(mechanism)
        self._state = _State.EXCHANGE
        return Step(reply=SaslHandshakeResponse(mechanisms=self._rules.mechanisms))

    def authenticate(self, token: bytes, now_ms: int) -> Step:
        """The token of a SaslAuthenticate request."""
        if self._state is not _State.EXCHANGE:
            return Step(reply=illegal_authenticate())
        return self._take(token, now_ms)

    def bare_token(self, token: bytes, now_ms: int) -> Step:
        return self._take(token, now_ms)

    def resume(self, result: Any, now_ms: int) -> Step:
        assert self._mechanism is not None
        return self._step(self._mechanism.resume(result), now_ms)

    def _may_reauthenticate(self, now_ms: int) -> bool:
        began_ms = self._reauthentication_began_ms
        return self.expires_ms is not None and (
            began_ms is None or now_ms - began_ms >= _MIN_REAUTHENTICATION_INTERVAL_MS
        )

    def _take(self, token: bytes, now_ms: int) -> Step:
        if self._former_mechanism_name not in (None, self._mechanism_name):
            return self._fail(
                f"the mechanism was {self._former_mechanism_name} before and is {self._mechanism_name} now"
            )
        assert self._mechanism is not None
        return self._step(self._mechanism.answer(token), now_ms)

    def _step(self, outcome: Outcome, now_ms: int) -> Step:
        match outcome:
            case LoginWork():
                return Step(work=outcome)
            case Challenge(token=token):
                return Step(reply=SaslAuthenticateResponse(auth_bytes=token) if self._is_framed else token)
            case LoginRefused(reason=reason, message=message):
                return self._fail_authentication(reason, message)
            case LoginAccepted():
                return self._accept(outcome, now_ms)

    def _accept(self, accepted: LoginAccepted, now_ms: int) -> Step:
        before, now = self.principal, accepted.principal
        if before is not None and before != now:
            return self._fail_authentication(
                f"{before} authenticates again as {now}",
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                f"{now.type}.{now.name}",
            )
        self._state = _State.AUTHENTICATED
        self._former_mechanism_name = None
        self.principal, self.by_token = now, accepted.by_token
        lifetime_ms = self._lifetime_ms(accepted.expires_ms, now_ms)
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        if not self._is_framed:
            return Step(reply=accepted.token, authenticated=now)
        reply = SaslAuthenticateResponse(auth_bytes=accepted.token, session_lifetime_ms=lifetime_ms or 0)
        return Step(reply=reply, authenticated=now)

    def _lifetime_ms(self, credential_expires_ms: int | None, now_ms: int) -> int | None:
        limits = [self._rules.max_reauthentication_ms.get(self._mechanism_name, 0)]
        if limits[0] <= 0:
            limits.clear()
        if credential_expires_ms is not None:
            limits.append(max(0, credential_expires_ms - now_ms))
        return min(limits, default=None)

    def _fail_authentication(self, reason: str, message: str | None) -> Step:
        if not self._is_framed:
            return self._fail(reason)
        said = message or (
            f"Authentication failed during {'authentication' if self.principal is None else 're-authentication'} "
            f"due to invalid credentials with SASL mechanism {self._mechanism_name}"
        )
        return self._fail(
            reason, SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=said)
        )

    def _fail(self, reason: str, reply: Response | None = None) -> Step:
        self._state = _State.ENDED
        # A reason may name what the client has said.
        ending = Ending(reason=clip(reason, _MAX_REASON_CHARACTERS), delay_ms=self._rules.failure_delay_ms)
        return Step(reply=reply, ending=ending)


def illegal_handshake() -> SaslHandshakeResponse:
    """Also the answer on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def illegal_authenticate() -> SaslAuthenticateResponse:
    """Also the answer on a listener without SASL."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
