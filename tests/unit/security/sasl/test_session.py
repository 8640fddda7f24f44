"""Authentication of a connection: what may be said when, sessions that end, and what a failure tells."""

from typing import Any

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import ApiKey
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeResponse
from quorate.security.access_tokens import AccessToken, InvalidToken
from quorate.security.decoys import Decoys
from quorate.security.principals import user
from quorate.security.sasl.mechanisms import CredentialSources, new_mechanism
from quorate.security.sasl.outcomes import LoginAccepted, LoginWork, Mechanism, Outcome
from quorate.security.sasl.plain import PlainPasswords, StoredPasswords
from quorate.security.sasl.scram import ScramLogin, ScramUsers
from quorate.security.sasl.session import SaslAdmission, SaslRules, SaslSession, Step
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, derive_credential

NOW = 1_000_000
SHA_256 = ScramMechanism.SCRAM_SHA_256
KNOWN = {(SHA_256, "alice"): derive_credential(SHA_256, "secret", b"salt")}
TOKENS = {"token.alice": NOW + 60_000, "token.late": NOW - 1}


def verify(token: str) -> AccessToken:
    if token not in TOKENS:
        raise InvalidToken("its key is not known", unknown_key=True)
    return AccessToken(principal_name="alice", expires_ms=TOKENS[token])


SOURCES = CredentialSources(
    passwords=PlainPasswords({"alice": "secret", "bob": "secret"}),
    scram_users=ScramUsers(find=lambda *key: KNOWN.get(key), find_token=lambda _: None, decoys=Decoys(b"key", {})),
    verify_token=verify,
    new_nonce=lambda: "serverNonce",
)
RULES = SaslRules(mechanisms=("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"))


def session(rules: SaslRules = RULES, sources: CredentialSources = SOURCES) -> SaslSession:
    return SaslSession(rules, lambda name: new_mechanism(name, sources))


def plain(name: str = "alice", password: str = "secret") -> bytes:
    return f"\0{name}\0{password}".encode()


def log_in(connection: SaslSession, mechanism: str = "PLAIN", token: bytes = plain(), now_ms: int = NOW) -> Step:
    assert connection.judge(ApiKey.SASL_HANDSHAKE, now_ms) is SaslAdmission.AUTHENTICATE
    answer = connection.handshake(mechanism, 1, now_ms)
    assert isinstance(answer.reply, SaslHandshakeResponse)
    assert answer.reply.error_code == 0
    assert connection.judge(ApiKey.SASL_AUTHENTICATE, now_ms) is SaslAdmission.AUTHENTICATE
    return connection.authenticate(token, now_ms)


def reply(step: Step) -> SaslAuthenticateResponse:
    assert isinstance(step.reply, SaslAuthenticateResponse)
    return step.reply


def test_before_and_after() -> None:
    connection = session()
    assert connection.judge(ApiKey.API_VERSIONS, NOW) is SaslAdmission.SERVE
    assert connection.judge(ApiKey.METADATA, NOW) is SaslAdmission.END
    assert connection.judge(ApiKey.SASL_AUTHENTICATE, NOW) is SaslAdmission.END
    connection.versions_told()
    assert connection.judge(ApiKey.API_VERSIONS, NOW) is SaslAdmission.END

    handshake = connection.handshake("PLAIN", 1, NOW)
    assert handshake.reply == SaslHandshakeResponse(mechanisms=RULES.mechanisms)
    for api in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE):
        assert connection.judge(api, NOW) is SaslAdmission.REFUSE

    step = connection.authenticate(plain(), NOW)
    assert step == Step(reply=SaslAuthenticateResponse(), authenticated=user("alice"))
    assert connection.principal == user("alice")
    for api in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.PRODUCE):
        assert connection.judge(api, NOW + 10**9) is SaslAdmission.SERVE


def test_frames_are_small_until_somebody_has_shown_who_they_are() -> None:
    connection = session()
    assert connection.max_frame_bytes == 524_288

    log_in(connection)

    assert connection.max_frame_bytes is None


def test_an_exchange_with_a_challenge() -> None:
    connection = session()
    login = ScramLogin(SHA_256, "alice", "secret", "nonce")

    challenge = reply(log_in(connection, "SCRAM-SHA-256", login.first()))
    assert challenge.error_code == 0
    proof = login.answer(bytes(challenge.auth_bytes))
    assert proof is not None
    step = connection.authenticate(proof, NOW)

    assert step.authenticated == user("alice")
    assert login.answer(bytes(reply(step).auth_bytes)) is None


@pytest.mark.parametrize(
    ("mechanism", "tokens", "message"),
    [
        ("PLAIN", [plain(password="wrong")], "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            [b"nonsense"],
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        ("OAUTHBEARER", [b"n,,\x01auth=Bearer other\x01\x01", b"\x01"], '{"status":"invalid_token"}'),
    ],
)
def test_a_failure_is_one_line_told_late_and_ends_the_connection(
    mechanism: str, tokens: list[bytes], message: str
) -> None:
    connection = session()
    step = log_in(connection, mechanism, tokens[0])
    for token in tokens[1:]:
        assert step.ending is None
        step = connection.authenticate(token, NOW)

    assert reply(step) == SaslAuthenticateResponse(error_code=58, error_message=message)
    assert step.ending is not None
    assert step.ending.delay_ms == 100
    assert step.authenticated is None
    assert connection.principal is None
    assert connection.judge(ApiKey.SASL_HANDSHAKE, NOW) is SaslAdmission.END


def test_who_is_unknown_and_who_is_wrong_are_told_the_same() -> None:
    steps = []
    for name in ("alice", "nobody"):
        connection = session()
        login = ScramLogin(SHA_256, name, "wrong", "nonce")
        challenge = reply(log_in(connection, "SCRAM-SHA-256", login.first()))
        proof = login.answer(bytes(challenge.auth_bytes))
        assert proof is not None
        steps.append(connection.authenticate(proof, NOW))

    assert reply(steps[0]) == reply(steps[1])


def test_a_mechanism_that_is_not_enabled() -> None:
    connection = session(SaslRules(mechanisms=("PLAIN",), failure_delay_ms=7))
    step = connection.handshake("SCRAM-SHA-256", 1, NOW)

    assert step.reply == SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=("PLAIN",))
    assert step.ending is not None
    assert step.ending.delay_ms == 7
    assert connection.judge(ApiKey.SASL_HANDSHAKE, NOW) is SaslAdmission.END


def test_an_old_clients_tokens_come_without_requests_around_them() -> None:
    connection = session()
    connection.handshake("SCRAM-SHA-256", 0, NOW)
    assert connection.takes_bare_tokens
    login = ScramLogin(SHA_256, "alice", "secret", "nonce")

    challenge = connection.bare_token(login.first(), NOW).reply
    assert isinstance(challenge, bytes)
    proof = login.answer(challenge)
    assert proof is not None
    step = connection.bare_token(proof, NOW)

    assert isinstance(step.reply, bytes)
    assert login.answer(step.reply) is None
    assert step.authenticated == user("alice")
    assert not connection.takes_bare_tokens


def test_an_old_client_that_fails_is_told_nothing() -> None:
    connection = session()
    connection.handshake("PLAIN", 0, NOW)
    step = connection.bare_token(plain(password="wrong"), NOW)

    assert step.reply is None
    assert step.ending is not None


def test_the_log_is_not_filled_by_a_long_name() -> None:
    step = log_in(session(), token=plain("n\n" * 100_000))

    assert step.ending is not None
    assert len(step.ending.reason) < 400
    assert "\n" not in step.ending.reason


def test_slow_work_is_a_workers() -> None:
    def find(name: str) -> tuple[ScramMechanism, ScramCredential]:
        return SHA_256, KNOWN[SHA_256, name]

    stored = StoredPasswords(find, lambda _: find("alice"))
    connection = session(sources=CredentialSources(passwords=stored, new_nonce=str))
    step = log_in(connection)
    assert step.work is not None
    assert step.reply is None

    step = connection.resume(step.work.run(), NOW)

    assert step.authenticated == user("alice")


def test_nobody_authenticates_again_where_sessions_do_not_end() -> None:
    connection = session()
    log_in(connection)

    assert connection.judge(ApiKey.SASL_HANDSHAKE, NOW) is SaslAdmission.AUTHENTICATE
    step = connection.handshake("PLAIN", 1, NOW)
    assert step.reply == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    assert step.ending is None
    late = connection.authenticate(plain(), NOW)
    assert reply(late).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.judge(ApiKey.METADATA, NOW) is SaslAdmission.SERVE


LIMITED = SaslRules(
    mechanisms=("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"),
    max_reauthentication_ms={"PLAIN": 5_000, "OAUTHBEARER": 90_000},
)


def test_a_session_ends_unless_it_is_renewed() -> None:
    connection = session(LIMITED)
    assert reply(log_in(connection)).session_lifetime_ms == 5_000
    assert connection.judge(ApiKey.METADATA, NOW + 4_999) is SaslAdmission.SERVE
    assert connection.judge(ApiKey.METADATA, NOW + 5_000) is SaslAdmission.END

    # A handshake is still taken, and meanwhile nothing else is.
    connection.handshake("PLAIN", 1, NOW + 5_000)
    assert connection.judge(ApiKey.METADATA, NOW + 5_000) is SaslAdmission.REFUSE
    assert connection.max_frame_bytes == 524_288
    step = connection.authenticate(plain(), NOW + 5_001)
    assert reply(step).session_lifetime_ms == 5_000
    assert connection.judge(ApiKey.METADATA, NOW + 10_000) is SaslAdmission.SERVE
    assert connection.judge(ApiKey.METADATA, NOW + 10_001) is SaslAdmission.END


@pytest.mark.parametrize(
    ("rules", "token", "lifetime_ms"),
    [(RULES, b"token.alice", 60_000), (LIMITED, b"token.alice", 60_000), (LIMITED, b"token.late", 0)],
)
def test_a_session_does_not_outlive_the_token_that_it_began_with(
    rules: SaslRules, token: bytes, lifetime_ms: int
) -> None:
    connection = session(rules)
    step = log_in(connection, "OAUTHBEARER", b"n,,\x01auth=Bearer " + token + b"\x01\x01")

    assert reply(step).session_lifetime_ms == lifetime_ms
    assert connection.expires_ms == NOW + lifetime_ms
    assert connection.judge(ApiKey.METADATA, NOW + lifetime_ms) is SaslAdmission.END


def test_a_session_is_not_renewed_more_than_once_a_second() -> None:
    connection = session(LIMITED)
    log_in(connection)
    log_in(connection, now_ms=NOW + 100)

    step = connection.handshake("PLAIN", 1, NOW + 1_099)
    assert isinstance(step.reply, SaslHandshakeResponse)
    assert step.reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert log_in(connection, now_ms=NOW + 1_100).authenticated == user("alice")


def test_nobody_becomes_somebody_else() -> None:
    connection = session(LIMITED)
    log_in(connection)
    step = log_in(connection, token=plain("bob"), now_ms=NOW + 2_000)

    assert reply(step).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply(step).error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert step.ending is not None
    assert connection.principal == user("alice")


def test_nobody_changes_the_mechanism() -> None:
    connection = session(LIMITED)
    log_in(connection)
    step = log_in(connection, "SCRAM-SHA-256", ScramLogin(SHA_256, "alice", "secret", "n").first(), NOW + 2_000)

    assert step.reply is None
    assert step.ending is not None


def test_a_renewal_that_fails_ends_the_connection() -> None:
    connection = session(LIMITED)
    log_in(connection)
    login = log_in(connection, token=plain(password="x"), now_ms=NOW + 2_000)

    assert login.ending is not None
    assert connection.judge(ApiKey.METADATA, NOW + 2_000) is SaslAdmission.END


def test_a_key_that_is_not_known_yet_is_wanted() -> None:
    connection = session()
    log_in(connection, "OAUTHBEARER", b"n,,\x01auth=Bearer other\x01\x01")

    assert connection.wants_keys


class _TokenUser:
    def answer(self, token: bytes) -> Outcome:
        return LoginWork(lambda: token)

    def resume(self, result: Any) -> Outcome:
        return LoginAccepted(principal=user("owner"), expires_ms=NOW + 10, by_token=result == b"yes")


def test_who_came_by_a_token_is_known_as_such() -> None:
    def of_token(_: str) -> Mechanism:
        return _TokenUser()

    connection = SaslSession(RULES, of_token)
    step = log_in(connection, token=b"yes")
    assert step.work is not None
    connection.resume(step.work.run(), NOW)

    assert connection.by_token
    assert connection.expires_ms == NOW + 10


def test_a_mechanism_without_anything_to_check_against_is_a_fault_of_ours() -> None:
    for name in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"):
        with pytest.raises(AssertionError):
            new_mechanism(name, CredentialSources(new_nonce=str))
