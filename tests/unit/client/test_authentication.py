"""Logins on a new connection: every mechanism, brokers that cheat, and when the login has to be done anew."""

from collections.abc import Callable, Iterator

import pytest

from quorate.client.config import ClientConfig
from quorate.client.connections.connection import Connection, ReceiveBuffers
from quorate.client.connections.pool import Connections, Connector
from quorate.client.errors import AuthenticationFailed
from quorate.client.security_config import SaslMechanism, SecurityConfig
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import ApiKey
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.protocol.schema import Request
from quorate.security.listeners import SecurityProtocol
from tests.unit.client.clock import FakeClock
from tests.unit.client.fake_broker import Answer, FakeBroker

APIS = [
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3),
    ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, min_version=0, max_version=1),
    ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, min_version=0, max_version=2),
]
#: What the broker says to each token of the client.
Reply = Callable[[bytes], SaslAuthenticateResponse]
StartBroker = Callable[[Reply], FakeBroker]


@pytest.fixture
def start() -> Iterator[StartBroker]:
    started: list[FakeBroker] = []

    def start_one(reply: Reply) -> FakeBroker:
        def authenticate(request: Request, _: object) -> Answer:
            assert isinstance(request, SaslAuthenticateRequest)
            return reply(bytes(request.auth_bytes))

        def handshake(request: Request, _: object) -> Answer:
            return SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])

        broker = FakeBroker(
            7,
            {
                ApiVersionsRequest: lambda *_: ApiVersionsResponse(api_keys=APIS),
                SaslHandshakeRequest: handshake,
                SaslAuthenticateRequest: authenticate,
            },
        )
        started.append(broker)
        return broker

    yield start_one
    for broker in started:
        broker.close()


def connector(clock: FakeClock, mechanism: SaslMechanism = SaslMechanism.PLAIN) -> Connector:
    security = SecurityConfig(
        protocol=SecurityProtocol.SASL_PLAINTEXT, sasl_mechanism=mechanism, username="alice", password="her secret"
    )
    return Connector(ClientConfig(bootstrap_servers=("a:1",), security=security), ReceiveBuffers(), clock)


def accepted(token: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=lifetime_ms)


def test_plain_sends_name_and_password_once(start: StartBroker, clock: FakeClock) -> None:
    tokens: list[bytes] = []
    broker = start(lambda token: tokens.append(token) or accepted(token))  # type: ignore[func-returns-value]

    connector(clock).open(broker.address).close()

    assert tokens == [b"\0alice\0her secret"]


def test_what_the_broker_says_of_a_refusal_is_told_and_the_password_is_not(
    start: StartBroker, clock: FakeClock
) -> None:
    broker = start(
        lambda _: SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="Invalid username or password"
        )
    )

    with pytest.raises(AuthenticationFailed, match=r"^authentication with .* failed: Invalid username") as caught:
        connector(clock).open(broker.address)

    assert "her secret" not in str(caught.value)


@pytest.mark.parametrize("challenge", [b"\xff\xfe", b"", b"e=unknown-user", b"r=x,s=c2FsdA==,i=4096"], ids=repr)
def test_a_broker_whose_scram_is_none_is_refused(start: StartBroker, clock: FakeClock, challenge: bytes) -> None:
    broker = start(lambda _: SaslAuthenticateResponse(auth_bytes=challenge))

    with pytest.raises(AuthenticationFailed, match="server"):
        connector(clock, SaslMechanism.SCRAM_SHA_256).open(broker.address)


def test_a_broker_that_does_not_know_the_password_is_refused(start: StartBroker, clock: FakeClock) -> None:
    def reply(token: bytes) -> SaslAuthenticateResponse:
        if token.startswith(b"n,,"):
            nonce = token.partition(b",r=")[2]
            return SaslAuthenticateResponse(auth_bytes=b"r=" + nonce + b"more,s=c2FsdA==,i=4096")
        return SaslAuthenticateResponse(auth_bytes=b"v=AAAA")

    with pytest.raises(AuthenticationFailed, match="could not prove that it knows the password"):
        connector(clock, SaslMechanism.SCRAM_SHA_256).open(start(reply).address)


def test_a_new_login_is_made_well_before_the_broker_ends_the_connection(start: StartBroker, clock: FakeClock) -> None:
    broker = start(lambda token: accepted(token, lifetime_ms=10_000))
    connecting = connector(clock)
    opened: list[Connection] = []

    def open_connection(address: Address) -> Connection:
        opened.append(connecting.open(address))
        return opened[-1]

    connections = Connections(open_connection, per_broker=1, clock=clock)
    first = connections.to(broker.address)
    clock.advance(7_000)
    assert connections.to(broker.address) is first
    clock.advance(1_000)
    second = connections.to(broker.address)

    assert second is not first
    assert (first.is_open, second.is_open) == (False, True)
    connections.close()
