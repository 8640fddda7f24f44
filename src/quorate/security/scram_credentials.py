"""SCRAM credentials: what is kept of a password, from which nobody can log in and nobody can read it.

RFC 5802: the stored key checks a client's proof, the server key makes the server's own. A password comes in, is hashed,
and is in nothing that this module returns. To hash takes milliseconds: shells have a worker do it.
"""

import hashlib
import hmac
from enum import IntEnum
from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.security.saslprep import is_prepared

MIN_ITERATIONS: Final = 4_096
#: As in Apache Kafka: more would let an administrator, or one who plays it, burn every client's time.
MAX_ITERATIONS: Final = 16_384
DEFAULT_ITERATIONS: Final = 4_096
#: Of randomness in a salt.
SALT_SEED_BYTES: Final = 17


class ScramMechanism(IntEnum):
    """Kafka's codes. Mechanism names are those of RFC 7677."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, _value: object) -> "ScramMechanism":
        return cls.UNKNOWN

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return _HASH_NAMES[self]

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size


_HASH_NAMES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


def scram_mechanism(name: str) -> ScramMechanism | None:
    return _BY_NAME.get(name)


_BY_NAME: Final = {mechanism.mechanism_name: mechanism for mechanism in _HASH_NAMES}


class ScramCredential(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Shown without its secrets: who has the stored key and sees one login can log in."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, ...)"

    __str__ = __repr__


def new_salt(seed: bytes) -> bytes:
    """In the form that Kafka's tools give their salts, 130 bits as text: so all users' salts look alike."""
    assert len(seed) >= SALT_SEED_BYTES
    number = int.from_bytes(seed[:SALT_SEED_BYTES]) >> 6
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def derive_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """What is kept of a password. Takes milliseconds."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Of a password that the asker has salted and hashed itself, as AlterUserScramCredentials has it."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )


def check_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether it is the password that was kept. Takes milliseconds, as many for a wrong one."""
    derived = derive_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(derived.stored_key, credential.stored_key)


def check_iterations(iterations: int) -> None:
    if iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def check_new_password(password: str) -> None:
    """Of a password that is chosen here. The error does not show it."""
    if not password:
        raise QuorateError("the password is empty")
    if not is_prepared(password):
        raise QuorateError(
            "the password has characters that some clients replace and others send as they are (RFC 4013); "
            "choose one without unusual spaces, ligatures, full-width or control characters"
        )


class NewScramUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user who is made before there is anybody who could be asked to: the first one of a cluster."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential


def parse_new_user(text: str, random_bytes: bytes) -> NewScramUser:
    """``SCRAM-SHA-256=[name=alice,password=secret]``, as ``kafka-storage format --add-scram`` has it.

    ``iterations`` may be named too. No error shows the text. Takes milliseconds.
    """
    name, separator, rest = text.partition("=")
    mechanism = scram_mechanism(name)
    if mechanism is None or not separator or not (rest.startswith("[") and rest.endswith("]")):
        raise QuorateError("a SCRAM user is written SCRAM-SHA-256=[name=alice,password=secret], or with SCRAM-SHA-512")
    settings = _settings(rest[1:-1])
    user, password = settings.get("name", ""), settings.get("password", "")
    if not user:
        raise QuorateError(f"the SCRAM user of {name} has no name")
    check_new_password(password)
    iterations = settings.get("iterations", str(DEFAULT_ITERATIONS))
    if not (iterations.isascii() and iterations.isdigit()) or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise QuorateError(f"the iterations of a SCRAM user are a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    credential = derive_credential(mechanism, password, new_salt(random_bytes), int(iterations))
    return NewScramUser(name=user, mechanism=mechanism, credential=credential)


def _settings(text: str) -> dict[str, str]:
    """Keys and values between commas. A password may have commas if it stands between quotes."""
    settings: dict[str, str] = {}
    rest = text
    while rest:
        key, separator, rest = rest.partition("=")
        key = key.strip()
        if not separator or key not in ("name", "password", "iterations") or key in settings:
            raise QuorateError("a SCRAM user has a name, a password and perhaps iterations, each of them once")
        if rest.startswith('"'):
            value, separator, rest = rest[1:].partition('"')
            if not separator or (rest and not rest.startswith(",")):
                raise QuorateError(f"the {key} of a SCRAM user has a quote without its other one")
            rest = rest.removeprefix(",")
        else:
            value, _, rest = rest.partition(",")
        settings[key] = value
    return settings
