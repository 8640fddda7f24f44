"""JSON Web Tokens (RFC 7519) of a cluster's identity provider: whether one is genuine, for here, and valid now.

Signatures are checked with ``cryptography``, OpenSSL's bindings by the Python Cryptographic Authority, which the
certificate tools need anyway. What stands around a signature is a page, and strict: the algorithm has to be one that
fits the key's type, whatever the token says; there is no ``none``, no shared secret, and no key inside of a token.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from quorate.kernel.errors import QuorateError
from quorate.security.access_tokens import AccessToken, InvalidToken, TokenRules, check_claims

_MIN_RSA_BITS: Final = 2_048
_MAX_TOKEN_BYTES: Final = 64 * 1024
_MAX_KEYS: Final = 1_000
#: Each takes a fraction of a millisecond of the loop, and strangers write tokens.
_MOST_TRIED: Final = 16

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
_RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})


class VerificationKey(msgspec.Struct, frozen=True, kw_only=True):
    key: Any
    #: Those that fit the key's type, or the one that it is for.
    algorithms: frozenset[str]
    key_id: str | None = None


def parse_key_set(content: bytes | str) -> tuple[VerificationKey, ...]:
    """A JWKS document (RFC 7517). Keys of types that no token may be signed with here are left out."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise QuorateError("the key set is no JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > _MAX_KEYS:
        raise QuorateError('the key set is no JWKS: it has no list "keys"')
    parsed = tuple(key for entry in keys if isinstance(entry, dict) and (key := _read_key(entry)) is not None)
    if not parsed:
        raise QuorateError("the key set has no RSA or EC key that can check a signature")
    return parsed


def verify_token(token: str, keys: Sequence[VerificationKey], rules: TokenRules, now_ms: int) -> AccessToken:
    """What a genuine token says; raises ``InvalidToken``."""
    if len(token) > _MAX_TOKEN_BYTES:
        raise InvalidToken(f"it is longer than {_MAX_TOKEN_BYTES} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it has not the three parts of a signed token")
    header = _read_json(parts[0], "header")
    _check_signature(header, f"{parts[0]}.{parts[1]}".encode(), _decode(parts[2], "signature"), keys)
    return check_claims(_read_json(parts[1], "claims"), rules, now_ms)


def _check_signature(
    header: Mapping[str, Any], signed: bytes, signature: bytes, keys: Sequence[VerificationKey]
) -> None:
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not any(algorithm in key.algorithms for key in keys):
        known = isinstance(algorithm, str) and _is_known(algorithm)
        # Not repeated: it is whatever the client wrote.
        raise InvalidToken("no key is for its algorithm" if known else "its algorithm is not one that is allowed")
    if "crit" in header or "b64" in header:
        raise InvalidToken("its header asks for an extension")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("its key id is no text")
    fitting = [
        key
        for key in keys
        if algorithm in key.algorithms and (key_id is None or key.key_id is None or key.key_id == key_id)
    ]
    if not fitting:
        raise InvalidToken("its key is not known", unknown_key=True)
    if len(fitting) > _MOST_TRIED:
        raise InvalidToken("it does not name its key, and there are too many to try")
    if not any(_is_signed_by(key.key, algorithm, signed, signature) for key in fitting):
        # Without a key id a new key cannot be told from a forged token.
        raise InvalidToken("its signature is wrong", unknown_key=key_id is None)


def _is_known(algorithm: str) -> bool:
    return algorithm in _RSA_ALGORITHMS or any(algorithm == name for _, name in _CURVES.values())


def _is_signed_by(key: PublicKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    digest = _HASHES[algorithm[2:]]
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            size = (key.key_size + 7) // 8
            if len(signature) != 2 * size:
                return False
            halves = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
            key.verify(encode_dss_signature(*halves), signed, ec.ECDSA(digest))
        elif algorithm.startswith("PS"):
            scheme = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
            key.verify(signature, signed, scheme, digest)
        else:
            key.verify(signature, signed, padding.PKCS1v15(), digest)
    except InvalidSignature:
        return False
    return True


def _read_json(part: str, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_decode(part, name), object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError):
        raise InvalidToken(f"its {name} is no JSON object") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"its {name} is no JSON object")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that comes twice, two readers may believe different halves."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name comes twice")
    return value


def _decode(part: Any, name: str) -> bytes:
    if not isinstance(part, str) or not set(part) <= _BASE64_URL:
        raise InvalidToken(f"its {name} is no base64")
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise InvalidToken(f"its {name} is no base64") from None


_BASE64_URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _read_key(entry: Mapping[str, Any]) -> VerificationKey | None:
    """None for a key that is for something else, or that is none."""
    named, key_id = entry.get("alg"), entry.get("kid")
    try:
        if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
            return None
        read = _KEY_TYPES.get(entry["kty"])
        if read is None:
            return None
        key, algorithms = read(entry)
    except (InvalidToken, KeyError, TypeError, ValueError):
        return None
    if named is not None:
        algorithms = frozenset(each for each in algorithms if each == named)
    if not algorithms:
        return None
    return VerificationKey(key=key, algorithms=algorithms, key_id=key_id if isinstance(key_id, str) else None)


def _rsa_key(entry: Mapping[str, Any]) -> tuple[PublicKey, frozenset[str]]:
    modulus, exponent = (int.from_bytes(_decode(entry[name], name)) for name in ("n", "e"))
    if modulus.bit_length() < _MIN_RSA_BITS:
        raise ValueError("the key is too short")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key(), _RSA_ALGORITHMS


def _ec_key(entry: Mapping[str, Any]) -> tuple[PublicKey, frozenset[str]]:
    curve, algorithm = _CURVES[entry["crv"]]
    x, y = (int.from_bytes(_decode(entry[name], name)) for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, curve).public_key(), frozenset({algorithm})


_KEY_TYPES: Final = {"RSA": _rsa_key, "EC": _ec_key}
