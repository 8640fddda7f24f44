"""Conversations at the door: each says something, and hears what comes back, until the node hangs up."""

import struct
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from quorate.protocol.apis import find_api
from quorate.protocol.errors import ProtocolError
from quorate.protocol.frames import decode_response
from quorate.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest
from quorate.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from quorate.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from quorate.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest
from quorate.protocol.schema import Request
from quorate.security.sasl.logins import LoginCredentials, new_login
from quorate.security.scram_credentials import ScramMechanism, salted_password
from tests.compat.raw_connection import encoded_request
from tests.compat.security_matrix.answers import told
from tests.compat.security_matrix.logins import bearer, credentials
from tests.compat.security_matrix.matrix import CLOSED
from tests.compat.security_matrix.names import ADMIN, password_of
from tests.compat.security_matrix.recording import Outcomes
from tests.compat.security_matrix.targets import RENEWED_EVERY_MS, access_token, connect
from tests.compat.security_matrix.world import World
from tests.eventually import eventually

SCRAM_USER: Final = "scrammer"
_ITERATIONS: Final = 4096
_SALT: Final = b"a salt of sixteen"
_NONCE: Final = "a-nonce-of-the-test-alone"
_HUGE: Final = 600_000


class Caller:
    """One connection, and what it has heard."""

    def __init__(self, world: World, listener: str = "SASL_PLAINTEXT") -> None:
        self.world = world
        self._connection = connect(world.target, listener)
        self.heard: list[Any] = []
        #: Of the last answer that was one.
        self.last: Any = None

    def say(self, request: Request, version: int, *, header_version: int | None = None) -> None:
        """``header_version``: what the header claims, where it is not the version that follows."""
        self._hear(lambda: self._ask(request, version, header_version))

    def say_bare(self, token: bytes) -> None:
        def ask() -> Any:
            self._connection.send_frame(token)
            return "some" if self._connection.receive_frame() else "empty"

        self._hear(ask)

    def say_bytes(self, data: bytes) -> None:
        def ask() -> Any:
            self._connection.send_bytes(data)
            self._connection.receive_frame()
            return "some"

        self._hear(ask)

    def close(self) -> None:
        self._connection.close()

    def _hear(self, ask: Callable[[], Any]) -> None:
        try:
            self.heard.append(ask())
        except ConnectionError:
            self.heard.append(CLOSED)

    def _ask(self, request: Request, version: int, header_version: int | None) -> Any:
        frame = bytearray(encoded_request(request, version))
        if header_version is not None:
            frame[6:8] = struct.pack(">h", header_version)
        self._connection.send_bytes(bytes(frame))
        api = find_api(request.API_KEY)
        assert api is not None
        received = self._connection.receive_frame()
        for each in (version, 0):
            # ApiVersions in a version that is not served is answered in the oldest.
            try:
                _, self.last = decode_response(api.response_type, received, each)
            except ProtocolError:
                continue
            return told(self.last, each, self.world.name_of, is_list=True)
        return "an answer of another shape"

    # What conversations are made of.

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        self.say(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> None:
        self.say(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, who: LoginCredentials, mechanism: str = "PLAIN", version: int = 2) -> None:
        self.handshake(mechanism)
        login = new_login(mechanism, who, _NONCE)
        token: bytes | None = login.first()
        while token is not None and self.heard[-1] != CLOSED:
            self.last = None
            self.authenticate(token, version)
            if self.last is None or self.last.error_code:
                return
            token = login.answer(self.last.auth_bytes)

    def knock(self) -> None:
        """Any request."""
        self.say(DescribeClusterRequest(), 0)


def plain(name: str, password: str | None = None, authorization_id: str = "") -> bytes:
    return "\0".join((authorization_id, name, password_of(name) if password is None else password)).encode()


def _bare_login(caller: Caller, token: bytes) -> None:
    caller.handshake(version=0)
    caller.say_bare(token)
    caller.knock()


def _each_version_of_login(caller: Caller, token: bytes) -> None:
    for version in range(3):
        other = Caller(caller.world)
        other.handshake()
        other.authenticate(token, version)
        other.knock()
        other.close()
        caller.heard += other.heard


def _then(*steps: Callable[[Caller], None]) -> Callable[[Caller], None]:
    def play(caller: Caller) -> None:
        for step in steps:
            step(caller)

    return play


def _one_token(token: bytes | Callable[[], bytes], mechanism: str = "PLAIN") -> Callable[[Caller], None]:
    def play(caller: Caller) -> None:
        caller.handshake(mechanism)
        caller.authenticate(token() if callable(token) else token)
        caller.knock()

    return play


def _login(who: LoginCredentials, mechanism: str = "PLAIN") -> Callable[[Caller], None]:
    return lambda caller: caller.log_in(who, mechanism)


def _wait(duration_s: float) -> Callable[[Caller], None]:
    return lambda _: time.sleep(duration_s)


def _ask_for_future_versions(caller: Caller) -> None:
    caller.say(_VERSIONS, 4, header_version=99)


def _change_tokens(caller: Caller) -> None:
    caller.say(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    caller.say(RenewDelegationTokenRequest(hmac=caller.world.hmac, renew_period_ms=1000), 2)
    caller.say(ExpireDelegationTokenRequest(hmac=caller.world.hmac, expiry_time_period_ms=100_000), 2)


def _ask_for_tokens(caller: Caller) -> None:
    _change_tokens(caller)
    caller.say(DescribeDelegationTokenRequest(owners=None), 3)


def _by_token(caller: Caller) -> None:
    token = caller.world.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, CreateDelegationTokenResponse)
    who = credentials(token.token_id, _text(token.hmac), by_token=True)

    def logged_in() -> bool:
        trying = Caller(caller.world)
        trying.log_in(who, "SCRAM-SHA-256")
        trying.close()
        return trying.last is not None and not trying.last.error_code

    eventually(logged_in, "a token that is known")
    caller.log_in(who, "SCRAM-SHA-256")
    _ask_for_tokens(caller)


def _text(hmac: bytes) -> str:
    return b64encode(bytes(hmac)).decode()


_ME: Final = credentials(ADMIN)
_SCRAM: Final = "SCRAM-SHA-256"
_BEARER: Final = "OAUTHBEARER"
_SOON: Final = 1.1
_LATE: Final = RENEWED_EVERY_MS / 1000 + 0.1
_VERSIONS: Final = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def _bearer_token(lifetime_s: float, authorization_id: str = "") -> bytes:
    header = f"n,{f'a={authorization_id}' if authorization_id else ''},"
    return f"{header}\x01auth=Bearer {access_token(ADMIN, lifetime_s)}\x01\x01".encode()


CONVERSATIONS: Final[dict[str, Callable[[Caller], None]]] = {
    "an unknown mechanism, v0": _then(lambda c: c.handshake("GSSAPI", 0), Caller.knock),
    "an unknown mechanism, v1": _then(lambda c: c.handshake("GSSAPI", 1), Caller.knock),
    "no mechanism": _then(lambda c: c.handshake(""), Caller.knock),
    "a mechanism in small letters": _then(lambda c: c.handshake("plain"), Caller.knock),
    "a handshake of the future": _then(
        lambda c: c.say(SaslHandshakeRequest(mechanism="PLAIN"), 1, header_version=2), Caller.knock
    ),
    "two handshakes": _then(Caller.handshake, Caller.handshake),
    "authentication without a handshake": _then(lambda c: c.authenticate(plain(ADMIN)), Caller.knock),
    "authentication of the future": _then(
        Caller.handshake,
        lambda c: c.say(SaslAuthenticateRequest(auth_bytes=plain(ADMIN)), 2, header_version=3),
        Caller.knock,
    ),
    "versions, and then a login": _then(lambda c: c.say(_VERSIONS, 4), _login(_ME), Caller.knock),
    "versions twice": _then(lambda c: c.say(_VERSIONS, 3), lambda c: c.say(_VERSIONS, 3), _login(_ME)),
    "versions of the future": _then(_ask_for_future_versions, lambda c: c.say(_VERSIONS, 3), _login(_ME)),
    "versions of the future, twice": _then(_ask_for_future_versions, _ask_for_future_versions, _login(_ME)),
    "versions for a client without a name": _then(
        lambda c: c.say(ApiVersionsRequest(), 3), lambda c: c.say(_VERSIONS, 3), _login(_ME)
    ),
    "versions in the middle": _then(Caller.handshake, lambda c: c.say(_VERSIONS, 3), Caller.knock),
    "the right password": lambda c: _each_version_of_login(c, plain(ADMIN)),
    "a wrong password": lambda c: _each_version_of_login(c, plain(ADMIN, "wrong")),
    "an unknown user": _one_token(plain("nobody", "wrong")),
    "no password": _one_token(plain(ADMIN, "")),
    "no name": _one_token(plain("", "wrong")),
    "nothing": _one_token(b""),
    "no PLAIN token": _one_token(b"something else"),
    "too many parts": _one_token(plain(ADMIN) + b"\0more"),
    "as oneself": _one_token(plain(ADMIN, authorization_id=ADMIN)),
    "as somebody else": _one_token(plain(ADMIN, authorization_id="stranger")),
    "no UTF-8": _one_token(b"\0admin\0\xff\xfe"),
    "bare, the right password": lambda c: _bare_login(c, plain(ADMIN)),
    "bare, a wrong password": lambda c: _bare_login(c, plain(ADMIN, "wrong")),
    "bare, nothing": lambda c: _bare_login(c, b""),
    "SCRAM": _then(_login(credentials(SCRAM_USER), _SCRAM), Caller.knock),
    "SCRAM, a wrong password": _then(_login(credentials(SCRAM_USER, "wrong"), _SCRAM), Caller.knock),
    "SCRAM, an unknown user": _then(_login(credentials("nobody"), _SCRAM), Caller.knock),
    "SCRAM, another mechanism's user": _then(_login(credentials(SCRAM_USER), "SCRAM-SHA-512"), Caller.knock),
    "SCRAM, as somebody else": _one_token(f"n,a=stranger,n={SCRAM_USER},r=abc".encode(), _SCRAM),
    "SCRAM, with a channel binding": _one_token(f"p=tls-unique,,n={SCRAM_USER},r=abc".encode(), _SCRAM),
    "SCRAM, nonsense": _one_token(b"nonsense", _SCRAM),
    "SCRAM, nonsense in the end": _then(
        lambda c: c.handshake(_SCRAM),
        lambda c: c.authenticate(f"n,,n={SCRAM_USER},r=abc".encode()),
        lambda c: c.authenticate(b"nonsense"),
        Caller.knock,
    ),
    "SCRAM, another nonce": _then(
        lambda c: c.handshake(_SCRAM),
        lambda c: c.authenticate(f"n,,n={SCRAM_USER},r=abc".encode()),
        lambda c: c.authenticate(b"c=biws,r=other,p=AAAA"),
        Caller.knock,
    ),
    "a request between two tokens": _then(
        lambda c: c.handshake(_SCRAM), lambda c: c.authenticate(f"n,,n={SCRAM_USER},r=abc".encode()), Caller.knock
    ),
    "an access token": _one_token(lambda: _bearer_token(3600), _BEARER),
    "an access token, as oneself": _one_token(lambda: _bearer_token(3600, ADMIN), _BEARER),
    "an access token, as somebody else": _one_token(lambda: _bearer_token(3600, "x"), _BEARER),
    "an expired access token": lambda c: c.log_in(bearer(access_token(ADMIN, -60)), _BEARER),
    "an expired access token, unread": _one_token(lambda: _bearer_token(-60), _BEARER),
    "an expired access token, and another": _then(
        lambda c: c.handshake(_BEARER),
        lambda c: c.authenticate(_bearer_token(-60)),
        lambda c: c.authenticate(_bearer_token(3600)),
    ),
    "no access token": lambda c: c.log_in(bearer("abc.def.ghi"), _BEARER),
    "no bearer": _one_token(b"n,,\x01auth=Basic abc\x01\x01", _BEARER),
    "nonsense for an access token": _one_token(b"nonsense", _BEARER),
    "a login again where none ends": _then(_login(_ME), _login(_ME), Caller.knock),
    "tokens for who came by a password": _then(_login(credentials("stranger")), _change_tokens),
    "tokens for who came by a token": _by_token,
    "a frame that is too large": lambda c: c.say_bytes(struct.pack(">i", _HUGE) + bytes(1000)),
    "a frame of a negative size": lambda c: c.say_bytes(struct.pack(">i", -1)),
}
#: At the listener whose sessions end.
RENEWALS: Final[dict[str, Callable[[Caller], None]]] = {
    "renewed": _then(_login(_ME), _wait(_SOON), _login(_ME), Caller.knock),
    "renewed at once": _then(_login(_ME), _login(_ME), Caller.knock),
    "renewed twice, too soon": _then(_login(_ME), _login(_ME), _login(_ME), Caller.knock),
    "renewed twice": _then(_login(_ME), _login(_ME), _wait(_SOON), _login(_ME), Caller.knock),
    "renewed too late": _then(_login(_ME), _wait(_LATE), _login(_ME), Caller.knock),
    "asked too late": _then(_login(_ME), _wait(_LATE), Caller.knock),
    "asked for versions too late": _then(_login(_ME), _wait(_LATE), lambda c: c.say(_VERSIONS, 3)),
    "renewed by another": _then(_login(_ME), _login(credentials("stranger")), Caller.knock),
    "renewed by a wrong password": _then(_login(_ME), _login(credentials(ADMIN, "wrong")), Caller.knock),
    "renewed by another mechanism": _then(_login(_ME), _login(credentials(SCRAM_USER), _SCRAM), Caller.knock),
    "renewed by an unknown mechanism": _then(_login(_ME), lambda c: c.handshake("GSSAPI"), Caller.knock),
    "asked in the middle of a renewal": _then(_login(_ME), Caller.handshake, Caller.knock),
    "tokens without a handshake again": _then(_login(_ME), lambda c: c.authenticate(plain(ADMIN)), Caller.knock),
    "an old handshake for a renewal": _then(_login(_ME), lambda c: c.handshake(version=0), Caller.knock),
}


def talk(world: World) -> Outcomes:
    _add_scram_user(world)
    conversations = [("SASL_PLAINTEXT", name) for name in CONVERSATIONS] + [("RENEWED", name) for name in RENEWALS]
    with ThreadPoolExecutor(len(RENEWALS)) as talking:
        heard = talking.map(lambda which: _one(world, *which), reversed(conversations))
        return dict(reversed([(name, said) for (_, name), said in zip(reversed(conversations), heard, strict=True)]))


def _one(world: World, listener: str, name: str) -> dict[str, Any]:
    caller = Caller(world, listener)
    (CONVERSATIONS | RENEWALS)[name](caller)
    caller.close()
    return {f"step {number}": said for number, said in enumerate(caller.heard, 1)}


def _add_scram_user(world: World) -> None:
    password = salted_password(ScramMechanism.SCRAM_SHA_256, password_of(SCRAM_USER), _SALT, _ITERATIONS)
    upsertion = ScramCredentialUpsertion(
        name=SCRAM_USER,
        mechanism=ScramMechanism.SCRAM_SHA_256,
        iterations=_ITERATIONS,
        salt=_SALT,
        salted_password=password,
    )
    answer = world.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [0], answer

    def known() -> bool:
        trying = Caller(world)
        trying.log_in(credentials(SCRAM_USER), _SCRAM)
        trying.close()
        return trying.last is not None and not trying.last.error_code

    eventually(known, "a SCRAM user that is known")
