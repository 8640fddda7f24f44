"""Access tokens: which are genuine and for here, and that no token chooses how it is checked."""

import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import QuorateError
from quorate.security.access_tokens import InvalidToken, TokenRules
from quorate.security.json_web_tokens import parse_key_set, verify_token
from tests.unit.security.tokens import EC_KEY, OTHER_RSA_KEY, RSA_KEY, encode, jwk, key_set, sign

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
RULES = TokenRules(expected_issuer="https://idp", expected_audience=("kafka", "other"))
KEYS = parse_key_set(key_set(jwk(RSA_KEY, kid="rsa", use="sig"), jwk(EC_KEY, kid="ec")))
CLAIMS: dict[str, Any] = {"iss": "https://idp", "aud": "kafka", "sub": "alice", "exp": NOW + 600, "scope": "read write"}


def refusal(token: str, rules: TokenRules = RULES) -> InvalidToken:
    with pytest.raises(InvalidToken) as raised:
        verify_token(token, KEYS, rules, NOW_MS)
    return raised.value


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_token_signed_with_rsa(algorithm: str) -> None:
    token = verify_token(sign(RSA_KEY, algorithm, CLAIMS, kid="rsa"), KEYS, RULES, NOW_MS)

    assert token.principal_name == "alice"
    assert token.expires_ms == (NOW + 600) * 1000
    assert token.scopes == {"read", "write"}


def test_a_token_signed_with_an_elliptic_curve() -> None:
    assert verify_token(sign(EC_KEY, "ES256", CLAIMS, kid="ec"), KEYS, RULES, NOW_MS).principal_name == "alice"
    assert verify_token(sign(EC_KEY, "ES256", CLAIMS), KEYS, RULES, NOW_MS).principal_name == "alice"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"exp": "tomorrow"}, "is no time"),
        ({"exp": True}, "is no time"),
        ({"exp": 1e300}, "is no time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 31}, "issued in the future"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "kafk"}, "audience"),
        ({"aud": ["x", 1]}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": "  "}, "no claim 'sub'"),
        ({"sub": ["alice"]}, "no claim 'sub'"),
    ],
)
def test_a_genuine_token_that_is_not_for_here_or_now(changes: dict[str, Any], reason: str) -> None:
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}

    assert reason in str(refusal(sign(RSA_KEY, "RS256", claims, kid="rsa")))


@pytest.mark.parametrize(
    "changes", [{"exp": NOW - 29}, {"nbf": NOW + 29}, {"iat": NOW + 29}, {"aud": ["a", "other"]}, {"exp": NOW + 1.5}]
)
def test_clocks_may_differ_a_little(changes: dict[str, Any]) -> None:
    assert verify_token(sign(RSA_KEY, "RS256", CLAIMS | changes), KEYS, RULES, NOW_MS)


def test_another_claim_may_name_the_principal_and_scopes_may_be_required() -> None:
    rules = TokenRules(principal_claim="client_id", scope_claim="scp", required_scopes=frozenset({"kafka"}))
    claims = CLAIMS | {"client_id": "app", "scp": ["kafka", "x"]}

    assert verify_token(sign(RSA_KEY, "RS256", claims), KEYS, rules, NOW_MS).principal_name == "app"
    assert "scope" in str(refusal(sign(RSA_KEY, "RS256", claims | {"scp": "other"}), rules))


def test_a_forged_signature_is_wrong() -> None:
    token = sign(OTHER_RSA_KEY, "RS256", CLAIMS, kid="rsa")

    error = refusal(token)
    assert "signature is wrong" in str(error)
    assert not error.unknown_key
    other_claims = sign(RSA_KEY, "RS256", CLAIMS).split(".")
    other_claims[1] = encode(json.dumps(CLAIMS | {"sub": "admin"}).encode())
    assert "signature is wrong" in str(refusal(".".join(other_claims)))


def test_a_token_that_names_no_key_is_tried_with_few() -> None:
    """A stranger's token is checked on the loop."""
    many = parse_key_set(key_set(*(jwk(RSA_KEY, kid=f"key-{number}") for number in range(17))))
    with pytest.raises(InvalidToken, match="does not name its key, and there are too many to try"):
        verify_token(sign(RSA_KEY, "RS256", CLAIMS), many, RULES, NOW_MS)
    assert verify_token(sign(RSA_KEY, "RS256", CLAIMS, kid="key-16"), many, RULES, NOW_MS).principal_name == "alice"
    assert verify_token(sign(RSA_KEY, "RS256", CLAIMS), many[:16], RULES, NOW_MS).principal_name == "alice"


def test_a_key_that_is_not_known_yet_is_worth_a_look() -> None:
    assert refusal(sign(OTHER_RSA_KEY, "RS256", CLAIMS, kid="new")).unknown_key
    assert refusal(sign(OTHER_RSA_KEY, "RS256", CLAIMS)).unknown_key


def test_no_algorithm_but_the_keys_own() -> None:
    public = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for algorithm in ("HS256", "none", "None", "NONE", "", "RS1", "EdDSA", "ES512", "RS256 "):
        signed = (
            f"{encode(json.dumps({'alg': algorithm, 'kid': 'rsa'}).encode())}.{encode(json.dumps(CLAIMS).encode())}"
        )
        # With HS256 the public key would be the shared secret.
        for proof in (hmac.digest(public, signed.encode(), "sha256"), b""):
            assert "algorithm" in str(refusal(f"{signed}.{encode(proof)}"))
    # An algorithm of another type of key than the one that is named.
    assert "key is not known" in str(refusal(sign(RSA_KEY, "RS256", CLAIMS, kid="ec")))


def test_a_key_that_is_for_one_algorithm_is_for_no_other() -> None:
    keys = parse_key_set(key_set(jwk(RSA_KEY, alg="PS256")))

    assert verify_token(sign(RSA_KEY, "PS256", CLAIMS), keys, RULES, NOW_MS)
    with pytest.raises(InvalidToken, match="no key is for its algorithm"):
        verify_token(sign(RSA_KEY, "RS256", CLAIMS), keys, RULES, NOW_MS)


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"], "exp": 1}, {"b64": False, "crit": ["b64"]}, {"kid": 5}, {"kid": ["rsa"]}],
)
def test_a_header_that_asks_for_more_is_refused(header: dict[str, Any]) -> None:
    refusal(sign(RSA_KEY, "RS256", CLAIMS, **header))


def test_keys_inside_of_a_token_are_not_looked_at() -> None:
    error = refusal(sign(OTHER_RSA_KEY, "RS256", CLAIMS, jwk=jwk(OTHER_RSA_KEY), jku="http://evil", kid="rsa"))

    assert "signature is wrong" in str(error)


GOOD = sign(RSA_KEY, "RS256", CLAIMS, kid="rsa")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        "..",
        GOOD + ".x",
        GOOD.replace(".", ". ", 1),
        GOOD + "=",
        "x" * 70_000,
        f"{encode(b'[]')}.{encode(b'{}')}.AA",
        f"{encode(b'{')}.{encode(b'{}')}.AA",
        f"{encode(b'[' * 5000)}.{encode(b'{}')}.AA",
        sign(RSA_KEY, "RS256", b"[]"),
        sign(RSA_KEY, "RS256", b'{"sub":"a","sub":"admin"}'),
        sign(EC_KEY, "ES256", CLAIMS)[:-8],
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    refusal(token)


@given(st.text(alphabet="abAB019-_.=+/ é\n", max_size=60), st.integers(0, len(GOOD)))
def test_no_text_makes_the_check_fail(noise: str, position: int) -> None:
    refusal(noise)
    if noise.strip():
        refusal(GOOD[:position] + noise + GOOD[position:])


def test_a_key_set_keeps_what_can_check_a_signature() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    keys = parse_key_set(
        key_set(
            jwk(RSA_KEY, kid="kept", x5c=["ignored"]),
            jwk(RSA_KEY, use="enc"),
            jwk(RSA_KEY, key_ops=["sign"]),
            jwk(RSA_KEY, alg="HS256"),
            jwk(short),
            {"kty": "oct", "k": "c2VjcmV0"},
            {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
            {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
            {"kty": "RSA", "n": 5, "e": "AQAB"},
            {"kty": "RSA"},
            {"kty": ["RSA"]},
            {"kty": "RSA", "key_ops": 5},
            jwk(RSA_KEY, alg=["RS256"]),
            {},
        )
    )

    assert [key.key_id for key in keys] == ["kept"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys":{}}', '{"keys":[]}', '{"keys":[1]}', b"\xff", "[" * 9999])
def test_what_is_no_key_set_is_one_sentence(content: str | bytes) -> None:
    with pytest.raises(QuorateError, match="key set"):
        parse_key_set(content)
