"""What a stranger says in place of what a mechanism of SASL asks for. Pure: all follows from the random source."""

import json
from base64 import b64encode
from random import Random
from typing import Any, Final

from tests.fuzz import world as w
from tests.fuzz.mutations import mutate
from tests.unit.security.tokens import OTHER_RSA_KEY, encode, sign

#: Of which nobody here is a user, but for the first.
_NAMES: Final = (
    "alice", "bob", "", "a" * 300, "alice\0", "alice,r=x", "a=2Cb", "=", "=3D=2C", "User:alice", "ANONYMOUS", "admin\n",
    "\u202ealice", "A\u0301", "\U0001f4a5" * 50, "../alice", "%s", "x is Allowed operation = ALL", "\ud7ff",
)  # fmt: skip
_NONCES: Final = ("fyko+d2lbbFgONRv9qkxdawL", "x", "", "n" * 100_000, "a,b", "\x7f", "ü", "=" * 40, "\0", " ")
_BASE64: Final = ("biws", "", "=", "====", "a", "YQ", "Y Q=", "!!!!", "biws" * 10_000, "\0", "eSws", "cD10bHM=")
_MOST_BYTES: Final = 1 << 20


def hostile_token(random: Random, mechanism: str, real: bytes) -> bytes:
    """Something like the token that is due; ``real`` is what an honest client would have said."""
    match random.randrange(8):
        case 0:
            return mutate(random, real, random.randbytes(200))
        case 1:
            return random.randbytes(random.choice((0, 1, 7, 300, 5_000)))
        case 2:
            return real[: random.randrange(len(real) + 1)]
        case 3:
            return random.choice((b"\0", b",", b"=", b"a=", b"\xff", b"n,,", b"\x01")) * _length(random)
        case _:
            return _of_mechanism(random, mechanism, real)


def _of_mechanism(random: Random, mechanism: str, real: bytes) -> bytes:
    match mechanism:
        case "PLAIN":
            return _plain(random)
        case "OAUTHBEARER":
            return _bearer(random)
        case _:
            return _scram(random, real)


def _length(random: Random) -> int:
    return random.choice((1, 2, 3, 1_000, 100_000, 500_000))


def _plain(random: Random) -> bytes:
    parts = [
        random.choice(("", "alice", *_NAMES)),
        random.choice(_NAMES),
        random.choice(("wrong", "", *w.HOSTILE_TEXTS)),
    ]
    if random.random() < 0.1:
        parts[random.randrange(3)] = "p" * random.choice((10_000, 500_000, _MOST_BYTES))
    if random.random() < 0.2:
        parts = [*parts, *parts] if random.random() < 0.5 else parts[: random.randrange(3)]
    return "\0".join(parts).encode("utf-8", "surrogatepass")


def _scram(random: Random, real: bytes) -> bytes:
    """Attributes of a sound message that are other ones, in another order, or there twice."""
    text = real.decode("utf-8", "replace")
    header, bare = ("n,,", text[3:]) if text.startswith("n,,") else ("", text)
    attributes = bare.split(",")
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(attributes))
        match random.randrange(7):
            case 0:
                attributes[place] = f"{attributes[place][:1]}={random.choice((*_NONCES, *_BASE64, *_NAMES))}"
            case 1:
                random.shuffle(attributes)
            case 2:
                attributes.insert(place, attributes[place])
            case 3:
                extra = ("m=x", "i=1", "i=99999999999999999999", "tokenauth=true", "s=", "e=other-error", "v=YQ==", "")
                attributes.insert(place, random.choice(extra))
            case 4:
                attributes[place] = attributes[place][: random.randrange(len(attributes[place]) + 1)]
            case 5:
                attributes += [f"{letters}=x" for letters in _letters(random.choice((5, 30_000)))]
            case _:
                header = random.choice(("", "n", "y,,", "p=tls-unique,,", "n,a=bob,", "n,a=,", "n,a==,", "x,,", ",,"))
    return (header + ",".join(attributes)).encode()


def _letters(count: int) -> list[str]:
    """Names of attributes, all different."""
    digits = "abcdefghijklmnop"
    return ["".join(digits[number >> shift & 15] for shift in (0, 4, 8, 12)) + "Z" for number in range(count)]


def _bearer(random: Random) -> bytes:
    token = _jwt(random)
    match random.randrange(6):
        case 0:
            return f"n,a={random.choice(_NAMES)},\x01auth=Bearer {token}\x01\x01".encode()
        case 1:
            return f"n,,\x01auth={random.choice(('Bearer', 'Basic', ''))} {token}\x01auth=x\x01\x01".encode()
        case 2:
            pairs = "\x01".join(f"key{letters}=v" for letters in _letters(random.choice((3, 20_000))))
            return f"n,,\x01{pairs}\x01auth=Bearer {token}\x01\x01".encode()
        case _:
            return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def _jwt(random: Random) -> str:
    """A token that nobody here has signed, or that only looks like one."""
    header: Any = random.choice(
        (
            {"alg": "none"},
            {"alg": "NONE", "typ": "JWT"},
            {"alg": "HS256", "kid": "first"},
            {
                "alg": "RS256",
                "kid": random.choice(("first", "../../keys.json", "' OR 1=1", "\0", 7, None, ["first"], {})),
            },
            {"alg": ["RS256"], "kid": "first"},
            {"alg": "RS256", "jwk": {"kty": "oct", "k": "AAAA"}, "jku": "http://127.0.0.1:1/"},
            {"alg": "RS256", "crit": ["exp"], "b64": False},
            {"alg": "ES256", "kid": "first"},
            {"alg": "RS256", "zip": "DEF"},
            [],
            "RS256",
            None,
        )
    )
    claims: Any = random.choice(
        (
            {"iss": "https://issuer.example", "aud": "quorate", "sub": "alice", "exp": 2**52},
            {"iss": ["https://issuer.example"], "aud": {"quorate": 1}, "sub": ["alice"], "exp": "never"},
            {"exp": 10**400},
            {"exp": 1e308, "nbf": -1, "iat": True},
            {"sub": "s" * 40_000},
            [[[]]] * 100,
            None,
        )
    )
    if random.random() < 0.1:
        claims_text = b"[" * random.choice((100, 40_000)) if random.random() < 0.5 else b'{"exp":' + b"9" * 5_000 + b"}"
    else:
        claims_text = json.dumps(claims).encode()
    match random.randrange(4):
        case 0 if isinstance(claims, dict):
            return sign(OTHER_RSA_KEY, "RS256", claims, kid=random.choice(("first", "second")))
        case 1:
            return f"{encode(json.dumps(header).encode())}.{encode(claims_text)}."
        case 2:
            return b64encode(random.randbytes(random.choice((10, 3_000, 60_000)))).decode().rstrip("=")
        case _:
            return f"{encode(json.dumps(header).encode())}.{encode(claims_text)}.{encode(random.randbytes(256))}"
