"""The login of a connection as its frames see it: what is served, held, answered late, and told."""

import asyncio
from collections.abc import Callable, Coroutine
from struct import pack
from typing import Any, cast

import pytest

from quorate.broker.request_context import Origin
from quorate.broker.sasl_gate import SaslGate
from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import ApiKey
from quorate.protocol.frames import decode_response, encode_request
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.protocol.schema import Request, Response
from quorate.security.audit import LoginAttempt
from quorate.security.principals import ANONYMOUS, user
from quorate.security.sasl.outcomes import (
    Challenge,
    LoginAccepted,
    LoginRefused,
    LoginWork,
    Mechanism,
    Outcome,
)
from quorate.security.sasl.session import SaslRules
from quorate.transport.connection import CloseConnection

Answer = "list[Any] | asyncio.Future[list[Any] | None] | None"
ALICE = LoginAccepted(principal=user("alice"), token=b"welcome")


class Script:
    """A mechanism that answers a token with what the test has said."""

    def __init__(self, outcomes: dict[bytes, Outcome]) -> None:
        self._outcomes = outcomes
        self.wants_keys = False

    def answer(self, token: bytes) -> Outcome:
        self.wants_keys = token == b"new key"
        return self._outcomes[token]

    def resume(self, result: Any) -> Outcome:
        return cast(Outcome, result)


class FakeLogins:
    def __init__(self, outcomes: dict[bytes, Outcome], **rules: Any) -> None:
        self.rules = SaslRules(mechanisms=("SCRIPT",), **{"failure_delay_ms": 0, "max_receive_bytes": 500, **rules})
        self._outcomes = outcomes
        self.time_ms = 1000
        self.missed_keys = 0
        self.failures: list[str] = []
        self.accepted: list[str] = []
        self.working: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def new_mechanism(self, name: str) -> Mechanism:
        return Script(self._outcomes)

    async def work(self, run: Callable[[], Any]) -> Any:
        await self.working
        return run()

    def now_ms(self) -> int:
        return self.time_ms

    def key_missed(self) -> None:
        self.missed_keys += 1

    def tell(self, attempt: LoginAttempt) -> None:
        if attempt.is_allowed:
            self.accepted.append(f"{attempt.listener} {attempt.host} {attempt.principal} {attempt.mechanism}")
        else:
            self.failures.append(f"{attempt.listener} {attempt.host} {attempt.reason}")


class FakeConnection:
    peer_host = "10.0.0.9"

    def __init__(self) -> None:
        self.limit: int | None = -1
        self.is_stranger = False
        self.held: list[asyncio.Future[Any]] = []
        self.ended = asyncio.Event()

    def limit_frames(self, max_bytes: int | None) -> None:
        self.limit = max_bytes

    def hold(self, until: "asyncio.Future[Any]") -> None:
        self.held.append(until)

    def end(self, reason: str) -> None:
        self.ended.set()


class FakeDispatcher:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.origin = Origin(host="10.0.0.9", listener="OUTSIDE")
        self.served: list[int] = []

    def __call__(self, frame: memoryview) -> list[bytes]:
        self.served.append(int.from_bytes(frame[:2]))
        return [pack(">iihi", 10, 1, 0, 0)]


class World:
    def __init__(self, outcomes: dict[bytes, Outcome] | None = None, **rules: Any) -> None:
        self.logins = FakeLogins({b"good": ALICE, b"bad": LoginRefused(reason="bad"), **(outcomes or {})}, **rules)
        self.connection = FakeConnection()
        self.dispatcher = FakeDispatcher()
        self.gate = SaslGate(self.logins, cast(Any, self.dispatcher), cast(Any, self.connection))

    def send(self, request: Request, version: int) -> Any:
        return self.gate(memoryview(bytearray(b"".join(encode_request(1, "client", request, version))[4:])))

    async def ask(self, request: Request, version: int, response: type[Response]) -> Any:
        reply = self.send(request, version)
        if isinstance(reply, asyncio.Future):
            reply = await reply
        return decode_response(response, b"".join(map(bytes, reply))[4:], version)[1]

    async def handshake(self) -> None:
        answer = await self.ask(SaslHandshakeRequest(mechanism="SCRIPT"), 1, SaslHandshakeResponse)
        assert answer.error_code == 0

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return cast(SaslAuthenticateResponse, await self.ask(request, 2, SaslAuthenticateResponse))

    def other(self, api_key: int = ApiKey.METADATA) -> Any:
        return self.gate(memoryview(bytearray(pack(">hhi", api_key, 0, 1))))


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_requests_are_served_after_the_login_and_know_who_sent_them() -> None:
    async def scenario() -> None:
        world = World({b"hello": Challenge(b"who?")})
        assert world.connection.limit == 500
        world.other(ApiKey.API_VERSIONS)
        await world.handshake()
        assert (await world.authenticate(b"hello")).auth_bytes == b"who?"
        assert world.dispatcher.origin.principal == ANONYMOUS
        assert world.connection.is_stranger
        assert (await world.authenticate(b"good")).auth_bytes == b"welcome"
        assert not world.connection.is_stranger
        assert world.dispatcher.origin == Origin(host="10.0.0.9", listener="OUTSIDE", principal=user("alice"))
        assert world.connection.limit is None
        world.other()
        assert world.dispatcher.served == [ApiKey.API_VERSIONS, ApiKey.METADATA]
        assert world.logins.failures == []
        assert world.logins.accepted == ["OUTSIDE 10.0.0.9 User:alice SCRIPT"]

    run(scenario())


def test_who_logs_in_by_a_token_is_known_for_it() -> None:
    async def scenario() -> None:
        world = World({b"token": LoginAccepted(principal=user("bob"), by_token=True)})
        await world.handshake()
        await world.authenticate(b"token")
        assert world.dispatcher.origin.by_token

    run(scenario())


@pytest.mark.parametrize(
    "frame", [b"", b"\0", pack(">hhi", ApiKey.METADATA, 0, 1), pack(">hhi", 17, 9, 1), b"\0\x11\0"]
)
def test_before_the_login_nothing_else_is_served(frame: bytes) -> None:
    async def scenario() -> None:
        world = World()
        with pytest.raises(CloseConnection):
            world.gate(memoryview(bytearray(frame)))
        assert world.dispatcher.served == []

    run(scenario())


def test_the_versions_are_told_once() -> None:
    async def scenario() -> None:
        world = World()
        world.other(ApiKey.API_VERSIONS)
        with pytest.raises(CloseConnection):
            world.other(ApiKey.API_VERSIONS)
        assert len(world.logins.failures) == 1

    run(scenario())


def test_a_request_in_the_middle_of_a_login_is_refused_in_its_own_form() -> None:
    async def scenario() -> None:
        world = World()
        await world.handshake()
        answer = await world.ask(FindCoordinatorRequest(key="group"), 3, FindCoordinatorResponse)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert world.dispatcher.served == []
        await world.connection.ended.wait()

    run(scenario())


def test_a_failure_is_answered_late_and_nothing_is_served_meanwhile() -> None:
    async def scenario() -> None:
        world = World(failure_delay_ms=20)
        await world.handshake()
        began = asyncio.get_running_loop().time()
        reply = world.send(SaslAuthenticateRequest(auth_bytes=b"bad"), 2)
        assert not reply.done()
        (held,) = world.connection.held
        _, answer = decode_response(SaslAuthenticateResponse, b"".join(map(bytes, await reply))[4:], 2)
        assert asyncio.get_running_loop().time() - began >= 0.02
        assert (answer.error_code, answer.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
        assert not world.connection.ended.is_set()  # The client has a moment to read it.
        await world.connection.ended.wait()
        assert not held.done()
        assert world.logins.failures == ["OUTSIDE 10.0.0.9 bad"]

    run(scenario())


def test_what_takes_long_is_worked_on_elsewhere_while_the_connection_waits() -> None:
    async def scenario() -> None:
        world = World(
            {b"slow": LoginWork(lambda: ALICE), b"slow and bad": LoginWork(lambda: LoginRefused(reason="no"))}
        )
        await world.handshake()
        reply = world.send(SaslAuthenticateRequest(auth_bytes=b"slow"), 2)
        assert world.connection.held == [reply]
        assert world.dispatcher.origin.principal == ANONYMOUS
        world.logins.working.set_result(None)
        await reply
        assert world.dispatcher.origin.principal == user("alice")
        other = World({b"slow and bad": LoginWork(lambda: LoginRefused(reason="no"))})
        other.logins.working.set_result(None)
        await other.handshake()
        assert (await other.authenticate(b"slow and bad")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await other.connection.ended.wait()

    run(scenario())


def test_tokens_may_come_without_a_request_around_them() -> None:
    async def scenario() -> None:
        world = World()
        answer = await world.ask(SaslHandshakeRequest(mechanism="SCRIPT"), 0, SaslHandshakeResponse)
        assert answer.error_code == 0
        assert world.gate(memoryview(bytearray(b"good"))) == [pack(">i", 7), b"welcome"]
        world.other()
        assert world.dispatcher.served == [ApiKey.METADATA]

    run(scenario())


def test_a_session_ends_unless_it_is_renewed() -> None:
    async def scenario() -> None:
        world = World(max_reauthentication_ms={"SCRIPT": 5000})
        await world.handshake()
        assert (await world.authenticate(b"good")).session_lifetime_ms == 5000
        world.logins.time_ms += 4000
        world.other()
        await world.handshake()
        await world.authenticate(b"good")
        world.logins.time_ms += 4000
        world.other()
        world.logins.time_ms += 1000
        with pytest.raises(CloseConnection):
            world.other()

    run(scenario())


def test_a_login_that_is_renewed_is_held_to_the_same_size() -> None:
    async def scenario() -> None:
        world = World({b"x" * 600: ALICE}, max_reauthentication_ms={"SCRIPT": 5000})
        await world.handshake()
        await world.authenticate(b"good")
        assert world.connection.limit is None
        world.logins.time_ms += 2000
        with pytest.raises(CloseConnection):
            world.send(SaslHandshakeRequest(mechanism="S" * 600), 1)
        await world.handshake()
        assert world.connection.limit == 500
        with pytest.raises(CloseConnection):  # What came before the limit was there.
            world.send(SaslAuthenticateRequest(auth_bytes=b"x" * 600), 2)

    run(scenario())


def test_a_token_with_a_new_key_has_the_keys_fetched() -> None:
    async def scenario() -> None:
        world = World({b"new key": Challenge(b"{}")})
        await world.handshake()
        await world.authenticate(b"new key")
        assert world.logins.missed_keys == 1

    run(scenario())
