"""What an unknown user's credential looks like: as one of those that there are, and always the same for the same name.

A login tells a salt and a number of iterations before it has checked anything, and takes as long as these cost. If
unknown users all had the usual ones, a user with others would be known to be there. So what a name gets is drawn from
the users that there are, as often as they have it. The draw is weighted rendezvous hashing: when users change, no more
names get something else than have to, and those get another salt with it, as after a new password.
"""

import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from math import log
from typing import Final

import msgspec

from quorate.security.scram_credentials import (
    DEFAULT_ITERATIONS,
    SALT_SEED_BYTES,
    ScramCredential,
    ScramMechanism,
    is_tool_salt,
    new_salt,
)

#: Of more different ones the rarest are left out; each is a hash in every login.
_MOST_SHAPES: Final = 64


class CredentialShape(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that somebody who logs in sees of a credential, but for the salt itself."""

    mechanism: ScramMechanism
    iterations: int = DEFAULT_ITERATIONS
    #: None where it is in the form of Kafka's tools.
    salt_bytes: int | None = None
    #: Whether PLAIN checks the user's password by it, and not by one of another mechanism.
    is_preferred: bool = True


#: How many credentials there are of each.
ShapeCounts = Mapping[CredentialShape, int]


def shapes_of(credentials: Mapping[ScramMechanism, ScramCredential]) -> list[CredentialShape]:
    """Of one user."""
    preferred = preferred_mechanism(credentials)
    return [
        CredentialShape(
            mechanism=mechanism,
            iterations=credential.iterations,
            salt_bytes=None if is_tool_salt(credential.salt) else len(credential.salt),
            is_preferred=mechanism is preferred,
        )
        for mechanism, credential in credentials.items()
    ]


def preferred_mechanism(mechanisms: Iterable[ScramMechanism]) -> ScramMechanism | None:
    return max(mechanisms, default=None)


def changed_counts(
    counts: ShapeCounts, before: Iterable[CredentialShape], after: Iterable[CredentialShape]
) -> ShapeCounts:
    changed = Counter(counts)
    changed.subtract(before)
    changed.update(after)
    return {shape: count for shape, count in changed.items() if count > 0}


class Decoys:
    """Shown without its key, which is the same on all nodes."""

    def __init__(self, key: bytes, counts: ShapeCounts) -> None:
        self._key = key
        self._by_mechanism = {
            mechanism: _drawn_from(shape for shape in counts.items() if shape[0].mechanism is mechanism)
            or {CredentialShape(mechanism=mechanism): 1}
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        }
        usual = {CredentialShape(mechanism=ScramMechanism.SCRAM_SHA_512): 1}
        self._preferred = _drawn_from(shape for shape in counts.items() if shape[0].is_preferred) or usual

    def __repr__(self) -> str:
        return "Decoys(...)"

    def of(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return self._credential(self._by_mechanism[mechanism], f"{mechanism.mechanism_name}\0{name}")[1]

    def preferred(self, name: str) -> tuple[ScramMechanism, ScramCredential]:
        """Of an unknown user whose password PLAIN is to check."""
        return self._credential(self._preferred, f"any\0{name}")

    def _credential(self, counts: ShapeCounts, purpose: str) -> tuple[ScramMechanism, ScramCredential]:
        # A name may be long, and is hashed once.
        seed = hmac.digest(self._key, purpose.encode(), "sha512")
        shape = max(counts, key=lambda each: _score(seed, each, counts[each]))
        mechanism, size = shape.mechanism, shape.mechanism.key_bytes
        credential = ScramCredential(
            salt=_salt(seed, shape),
            stored_key=_expanded(seed, "stored", size),
            server_key=_expanded(seed, "server", size),
            iterations=shape.iterations,
        )
        return mechanism, credential


def _drawn_from(counts: Iterable[tuple[CredentialShape, int]]) -> ShapeCounts:
    """Of as many as are drawn from; who prefers which mechanism is nothing that is seen."""
    wanted: Counter[CredentialShape] = Counter()
    for shape, count in counts:
        wanted[msgspec.structs.replace(shape, is_preferred=True)] += count
    return dict(wanted.most_common(_MOST_SHAPES))


def _score(seed: bytes, shape: CredentialShape, count: int) -> float:
    text = f"shape\0{shape.mechanism}\0{shape.iterations}\0{shape.salt_bytes}"
    drawn = int.from_bytes(_expanded(seed, text, 8)) + 1
    return -count / log(drawn / (2**64 + 1))


def _salt(seed: bytes, shape: CredentialShape) -> bytes:
    purpose = f"salt\0{shape.iterations}"
    if shape.salt_bytes is None:
        return new_salt(_expanded(seed, purpose, SALT_SEED_BYTES))
    return _expanded(seed, purpose, shape.salt_bytes)


def _expanded(seed: bytes, purpose: str, size_bytes: int) -> bytes:
    content = b""
    while len(content) < size_bytes:
        content += hmac.digest(seed, f"{purpose}\0{len(content)}".encode(), "sha512")
    return content[:size_bytes]
