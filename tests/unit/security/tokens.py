"""An identity provider for tests: keys, a JWKS of them, and tokens that they sign."""

import json
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def encode(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def integer(value: int, size: int = 0) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8))


def jwk(key: PrivateKey, **fields: Any) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {"kty": "RSA", "n": integer(numbers.n), "e": integer(numbers.e), **fields}
    point = key.public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "x": integer(point.x, 32), "y": integer(point.y, 32), **fields}


def key_set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys})


def sign(key: PrivateKey, algorithm: str, claims: dict[str, Any] | bytes, **header: Any) -> str:
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{encode(json.dumps({'alg': algorithm, **header}).encode())}.{encode(body)}"
    return f"{signed}.{encode(signature(key, algorithm, signed.encode()))}"


def signature(key: PrivateKey, algorithm: str, signed: bytes) -> bytes:
    digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(digest)))
        return r.to_bytes(32) + s.to_bytes(32)
    if algorithm.startswith("PS"):
        return key.sign(signed, padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH), digest)
    return key.sign(signed, padding.PKCS1v15(), digest)
