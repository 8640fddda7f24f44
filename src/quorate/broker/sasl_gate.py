"""The login of a connection, before and between its requests: nothing of these is read until a client has logged in.

The shell of ``security.sasl.session``, which decides: it decodes what belongs to the login, has a worker do what takes
long, holds answers back, and tells the log. ``ListenerLogins`` knows against what it is checked who logs in: passwords
of the listener's settings, users and tokens of the metadata, the keys of an issuer.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

import msgspec

from quorate.broker.audit_log import AuditLog
from quorate.broker.dispatch import Dispatcher, bare_refusal
from quorate.broker.handlers import APIS
from quorate.broker.issuer_keys import IssuerKeys
from quorate.broker.large_requests import decode_request
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.kernel.line_limit import LineLimit
from quorate.kernel.tasks import awaited_task
from quorate.protocol.apis import ApiKey, find_api
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import RequestHeader, decode_request_header, encode_response
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest
from quorate.security.audit import LoginAttempt
from quorate.security.decoys import Decoys, ShapeCounts
from quorate.security.delegation_token import TokenKeys
from quorate.security.sasl.mechanisms import CredentialSources, new_mechanism
from quorate.security.sasl.outcomes import LoginWork, Mechanism
from quorate.security.sasl.plain import PlainPasswords, StoredPasswords
from quorate.security.sasl.scram import ScramUsers, TokenSecret
from quorate.security.sasl.session import Ending, SaslAdmission, SaslRules, SaslSession, Step
from quorate.security.sasl.settings import SaslSettings
from quorate.security.scram_credentials import ScramCredential, ScramMechanism
from quorate.transport.connection import CloseConnection, ServerConnection
from quorate.transport.outbox import Reply

logger = logging.getLogger(__name__)

_LOGIN_APIS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
#: Of the answer to ApiVersions in every version: its size, correlation id and error code.
_ERROR_CODE = slice(8, 10)
#: Between the answer to a failed login and the end of its connection: some clients miss an answer that ends with it.
_READING_S = 0.1
#: Of what takes milliseconds: the workers have other things to do, and strangers ask for these. One core is left to
#: the loop, where there are two.
_WORKED_AT_ONCE: Final = 2 if (os.cpu_count() or 1) > 2 else 1
_NONCE_BITS: Final = 160


class Logins(Protocol):
    """What all connections to a listener share."""

    @property
    def rules(self) -> SaslRules: ...

    def new_mechanism(self, name: str) -> Mechanism: ...

    async def work(self, run: Callable[[], Any]) -> Any:
        """What it returns, called by a worker."""
        ...

    def now_ms(self) -> int: ...

    def key_missed(self) -> None:
        """A token was signed with a key that is not known here."""
        ...

    def tell(self, attempt: LoginAttempt) -> None: ...


class SaslGate:
    """Serves the frames of one connection: its dispatcher gets those that come after the login."""

    def __init__(self, logins: Logins, dispatcher: Dispatcher, connection: ServerConnection) -> None:
        self._logins = logins
        self._dispatcher = dispatcher
        self._connection = connection
        self._session = SaslSession(logins.rules, logins.new_mechanism)
        #: Whether every request is served, but for those of a login. Not where sessions end.
        self._is_open = False
        connection.limit_frames(self._session.max_frame_bytes)
        connection.is_stranger = True

    def __call__(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        if len(frame) < 2:
            raise CloseConnection("a frame that cannot hold a request header")
        if self._session.takes_bare_tokens:
            return self._carry_out(None, self._session.bare_token(bytes(frame), self._logins.now_ms()))
        api_key = int.from_bytes(frame[:2], signed=True)
        if self._is_open and api_key not in _LOGIN_APIS:
            return self._dispatcher(frame)
        match self._session.judge(api_key, self._logins.now_ms()):
            case SaslAdmission.SERVE:
                return self._serve(api_key, frame)
            case SaslAdmission.AUTHENTICATE:
                return self._authenticate(frame)
            case SaslAdmission.REFUSE:
                return self._refuse(frame)
            case SaslAdmission.END:
                raise self._ended("a request that needs a login before it, or another one")

    def _serve(self, api_key: int, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        reply = self._dispatcher(frame)
        if api_key == ApiKey.API_VERSIONS and isinstance(reply, list) and not any(bytes(reply[0][_ERROR_CODE])):
            self._session.versions_told()
        return reply

    def _authenticate(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        if len(frame) > self._logins.rules.max_receive_bytes:
            # Of a client that logs in again: its other requests may be longer.
            raise self._ended("a login request that is longer than sasl.server.max.receive.size")
        header = self._header(frame)
        api = APIS[header.api_key]
        if not header.is_known or not api.min_version <= header.api_version <= api.max_version:
            raise self._ended("a version of a login request that is not served")
        try:
            request: Any = decode_request(api, header, frame)
        except ProtocolError as error:
            raise self._ended(str(error)) from error
        now_ms = self._logins.now_ms()
        if isinstance(request, SaslHandshakeRequest):
            return self._carry_out(header, self._session.handshake(request.mechanism, header.api_version, now_ms))
        return self._carry_out(header, self._session.authenticate(bytes(request.auth_bytes), now_ms))

    def _refuse(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        header = self._header(frame)
        known = find_api(header.api_key)
        refusal = None
        if known is not None and header.is_known:
            refusal = bare_refusal(header, known.response_type, ErrorCode.ILLEGAL_SASL_STATE)
        ending = Ending(reason="a request in the middle of a login", delay_ms=self._logins.rules.failure_delay_ms)
        return self._end(refusal, ending)

    def _header(self, frame: memoryview) -> RequestHeader:
        try:
            return decode_request_header(frame)
        except ProtocolError as error:
            raise self._ended(str(error)) from error

    def _carry_out(self, header: RequestHeader | None, step: Step) -> "Reply | asyncio.Future[Reply | None] | None":
        if step.work is not None:
            working = awaited_task(self._dispatcher.loop, self._work(header, step.work))
            self._connection.hold(working)
            return working
        if self._session.wants_keys:
            self._logins.key_missed()
        self._connection.limit_frames(self._session.max_frame_bytes)
        if step.authenticated is not None:
            self._let_in()
        reply = None if step.reply is None else _encoded(header, step.reply)
        return reply if step.ending is None else self._end(reply, step.ending)

    async def _work(self, header: RequestHeader | None, work: LoginWork) -> Reply | None:
        result = await self._logins.work(work.run)
        answer = self._carry_out(header, self._session.resume(result, self._logins.now_ms()))
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _let_in(self) -> None:
        session = self._session
        assert session.principal is not None
        self._dispatcher.origin = msgspec.structs.replace(
            self._dispatcher.origin, principal=session.principal, by_token=session.by_token
        )
        self._is_open = session.expires_ms is None
        self._connection.is_stranger = False
        self._tell(str(session.principal), None)

    def _end(self, reply: Reply | None, ending: Ending) -> "asyncio.Future[Reply | None]":
        """The answer is held back, and the connection with it: who guesses passwords gets few tries."""
        self._tell(None, ending.reason)
        loop = self._dispatcher.loop
        self._connection.hold(loop.create_future())  # Nothing is served any more.
        return awaited_task(loop, self._end_later(reply, ending))

    async def _end_later(self, reply: Reply | None, ending: Ending) -> Reply | None:
        await asyncio.sleep(ending.delay_ms / 1000)
        self._dispatcher.loop.call_later(_READING_S, self._connection.end, ending.reason)
        return reply

    def _ended(self, reason: str) -> CloseConnection:
        self._tell(None, reason)
        return CloseConnection(reason)

    def _tell(self, principal: str | None, reason: str | None) -> None:
        attempt = LoginAttempt(
            principal=principal,
            host=self._connection.peer_host,
            listener=self._dispatcher.origin.listener,
            mechanism=self._session.mechanism_name or "SASL",
            is_allowed=reason is None,
            reason=reason,
        )
        self._logins.tell(attempt)


def _encoded(header: RequestHeader | None, reply: Any) -> Reply:
    if isinstance(reply, bytes):
        return [len(reply).to_bytes(4), reply]
    assert header is not None
    return encode_response(header.correlation_id, reply, header.api_version)


def login_turns() -> asyncio.Semaphore:
    """Of a node: for what a login has a worker compute."""
    return asyncio.Semaphore(_WORKED_AT_ONCE)


class ListenerLogins:
    """Of one listener; ``SaslGate`` asks it."""

    def __init__(
        self, settings: SaslSettings, services: Services, random: Random, decoy_key: bytes, turns: asyncio.Semaphore
    ) -> None:
        """``turns`` are those of ``login_turns``, which all listeners share."""
        self._services = services
        self._random = random
        self._decoy_key = decoy_key
        self._shapes: ShapeCounts | None = None
        self._settings = settings
        self._passwords = None if settings.passwords is None else PlainPasswords(settings.passwords)
        self._issuer = None
        if settings.tokens is not None:
            self._issuer = IssuerKeys(settings.tokens, services.clock, loop=services.loop, executor=services.executor)
        self._turns = turns
        self._lines = LineLimit()
        self._audit = AuditLog()

    @property
    def rules(self) -> SaslRules:
        return self._settings.rules

    def start(self) -> None:
        if self._issuer is not None:
            self._issuer.start()

    async def stop(self) -> None:
        if self._issuer is not None:
            await self._issuer.stop()

    def now_ms(self) -> int:
        return self._services.clock.now_ms()

    async def work(self, run: Callable[[], Any]) -> Any:
        async with self._turns:
            return await self._services.loop.run_in_executor(self._services.executor, run)

    def key_missed(self) -> None:
        if self._issuer is not None:
            self._issuer.key_missed()

    def tell(self, attempt: LoginAttempt) -> None:
        if attempt.is_allowed:
            self._audit.tell_login(attempt)
            return
        untold = self._lines.admit(self._services.loop.time())
        if untold is None:
            return
        logger.info(
            "login failed listener=%s peer=%s reason=%r untold=%s",
            attempt.listener,
            attempt.host,
            attempt.reason,
            untold,
        )
        self._audit.tell_login(attempt, untold)

    def new_mechanism(self, name: str) -> Mechanism:
        users = self._users()
        return new_mechanism(
            name,
            CredentialSources(
                passwords=self._passwords or self._stored_passwords(users),
                scram_users=users,
                verify_token=None if self._issuer is None else self._issuer.verify,
                new_nonce=self._new_nonce,
            ),
        )

    def _users(self) -> ScramUsers:
        shapes = self._services.metadata.image.security.shapes
        if shapes is not self._shapes:
            self._shapes, self._decoys = shapes, Decoys(self._decoy_key, shapes)
        return ScramUsers(find=self._find, find_token=self._find_token, decoys=self._decoys)

    def _find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._services.metadata.image.security.scram_credential(mechanism, user)

    def _find_token(self, token_id: str) -> TokenSecret | None:
        keys: TokenKeys | None = self._services.token_keys
        if keys is None:
            return None
        return keys.login_secret(self._services.metadata.image.security.tokens, token_id, self.now_ms())

    def _stored_passwords(self, users: ScramUsers) -> StoredPasswords:
        """PLAIN without users of its own checks those of the metadata."""
        return StoredPasswords(self._services.metadata.image.security.any_scram_credential, users.decoys.preferred)

    def _new_nonce(self) -> str:
        return f"{self._random.getrandbits(_NONCE_BITS):040x}"
