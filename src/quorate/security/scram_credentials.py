"""SCRAM credentials: what is kept of a password, from which nobody can log in and nobody can read it.

RFC 5802: the stored key checks a client's proof, the server key makes the server's own. A password comes in, is hashed,
and is in nothing that this module returns. To hash takes milliseconds: shells have a worker do it.

Apache Kafka and librdkafka send and hash what was typed. Clients that follow SASLprep (RFC 4013) prepare it first, so
that its different spellings are the same. So a password is prepared here nowhere silently: one that both would not send
alike is refused where it is chosen (``is_prepared``).
"""

import hashlib
import hmac
import stringprep
import unicodedata
from enum import IntEnum
from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError

MIN_ITERATIONS: Final = 4_096
#: As in Apache Kafka: more would let an administrator, or one who plays it, burn every client's time.
MAX_ITERATIONS: Final = 16_384
DEFAULT_ITERATIONS: Final = 4_096
#: Of randomness in a salt.
SALT_SEED_BYTES: Final = 17

_MAX_NAME_LENGTH: Final = 255

_MAPPED_TO_NOTHING: Final = stringprep.in_table_b1
_OTHER_SPACES: Final = stringprep.in_table_c12
_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    #: Stored strings have no code points that Unicode 3.2 had not assigned.
    stringprep.in_table_a1,
)


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


def is_tool_salt(salt: bytes) -> bool:
    """Whether it is in the form of ``new_salt``."""
    return 0 < len(salt) <= _MOST_DIGITS and not salt.strip(_DIGITS.encode())


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Of a number of 130 bits.
_MOST_DIGITS: Final = 26


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


def check_new_user_name(name: str) -> None:
    """Of a user that is made here."""
    if not name or name != name.strip():
        raise QuorateError("a user's name is not empty, and has no blanks around it")
    if len(name) > _MAX_NAME_LENGTH:
        raise QuorateError(f"a user's name has {_MAX_NAME_LENGTH} characters at most")
    if not is_prepared(name):
        raise QuorateError(
            f"{name!r} has characters that some clients replace and others send as they are (RFC 4013); "
            "choose a name without unusual spaces, ligatures, full-width or control characters"
        )


def check_new_password(password: str) -> None:
    """Of a password that is chosen here. The error does not show it."""
    if not password:
        raise QuorateError("the password is empty")
    if not is_prepared(password):
        raise QuorateError(
            "the password has characters that some clients replace and others send as they are (RFC 4013); "
            "choose one without unusual spaces, ligatures, full-width or control characters"
        )


def saslprep(text: str) -> str:
    """Raises ValueError for what no name or password may contain."""
    mapped = "".join(" " if _OTHER_SPACES(each) else each for each in text if not _MAPPED_TO_NOTHING(each))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for each in prepared:
        if any(is_in_table(each) for is_in_table in _PROHIBITED):
            raise ValueError(f"U+{ord(each):04X} may not be in it")
    _check_directions(prepared)
    return prepared


def is_prepared(text: str) -> bool:
    """Whether clients that prepare it send the same as those that do not."""
    try:
        return saslprep(text) == text
    except ValueError:
        return False


def _check_directions(text: str) -> None:
    """RFC 3454, section 6: text from right to left begins and ends so, and has none from left to right in it."""
    if not any(stringprep.in_table_d1(each) for each in text):
        return
    if any(stringprep.in_table_d2(each) for each in text):
        raise ValueError("it mixes letters that are written from left to right and from right to left")
    if not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])):
        raise ValueError("it begins or ends with what is not written from right to left")
