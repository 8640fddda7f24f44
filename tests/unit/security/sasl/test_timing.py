"""How long a failed login takes tells no user names: known users and unknown ones side by side, in the same run.

What is compared is one against the other, while both take turns, and never a time against a number of seconds. A known
user's credential lies elsewhere in memory than one that was just made, which is a hundredth of what SCRAM takes here (a
third of a microsecond), so nothing smaller than that is looked for.
"""

import hmac
import random
import time
from base64 import b64decode
from collections.abc import Callable
from itertools import cycle
from statistics import median

import msgspec
import pytest

from quorate.security.decoys import Decoys, ShapeCounts, changed_counts, shapes_of
from quorate.security.sasl.mechanisms import CredentialSources, new_mechanism
from quorate.security.sasl.outcomes import Challenge, LoginRefused, LoginWork, Outcome, SaslLogin
from quorate.security.sasl.plain import PlainLogin, PlainPasswords, StoredPasswords
from quorate.security.sasl.scram import ScramLogin, ScramUsers
from quorate.security.scram_credentials import (
    ScramCredential,
    ScramMechanism,
    derive_credential,
    is_tool_salt,
    new_salt,
    scram_mechanism,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ROUNDS = 200
#: Of what a login takes. Two more hashes in SCRAM are far beyond it.
MOST = 0.07

Credentials = dict[str, dict[ScramMechanism, ScramCredential]]


def users(*iterations: int) -> Credentials:
    """All have both mechanisms."""
    made: Credentials = {}
    for number in range(12):
        of_user = made[f"user-{number}"] = {}
        for mechanism in (SHA_512, SHA_256):
            salt = new_salt(bytes([number, mechanism]) * 9)
            of_user[mechanism] = derive_credential(mechanism, "secret", salt, iterations[number % len(iterations)])
    return made


class Listener:
    def __init__(self, known: Credentials, *, has_own_passwords: bool = False) -> None:
        counts: ShapeCounts = {}
        for of_user in known.values():
            counts = changed_counts(counts, [], shapes_of(of_user))
        decoys = Decoys(b"key", counts)
        self._sources = CredentialSources(
            passwords=PlainPasswords(dict.fromkeys(known, "a long secret" * 10))
            if has_own_passwords
            else StoredPasswords(lambda name: _preferred(known.get(name)), decoys.preferred),
            scram_users=ScramUsers(
                find=lambda mechanism, name: known.get(name, {}).get(mechanism),
                find_token=lambda _: None,
                decoys=decoys,
            ),
            new_nonce=lambda: f"{random.getrandbits(160):040x}",
        )

    def fail(self, mechanism: str, name: str) -> tuple[float, list[bytes]]:
        """How long the node's own part of a login took, and what it said."""
        server, login = new_mechanism(mechanism, self._sources), _login(mechanism, name)
        token, taken_s = login.first(), 0.0
        said: list[bytes] = []
        while True:
            began_s = time.process_time()
            outcome: Outcome = server.answer(token)
            if isinstance(outcome, LoginWork):
                outcome = server.resume(outcome.run())
            taken_s += time.process_time() - began_s
            if isinstance(outcome, LoginRefused):
                return taken_s, [*said, (outcome.message or "").encode()]
            assert isinstance(outcome, Challenge)
            said.append(outcome.token)
            answered = login.answer(outcome.token)
            assert answered is not None
            token = answered


def _preferred(
    found: dict[ScramMechanism, ScramCredential] | None,
) -> tuple[ScramMechanism, ScramCredential] | None:
    return None if found is None else max(found.items())


def _login(mechanism: str, name: str) -> SaslLogin:
    scram = scram_mechanism(mechanism)
    if scram is None:
        return PlainLogin(name, "wrong")
    return ScramLogin(scram, name, "wrong", f"{random.getrandbits(160):040x}")


def difference(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Of what the other takes. The middle of three: something else may disturb one."""
    return sorted(_difference(one, other) for _ in range(3))[1]


def _difference(one: Callable[[], float], other: Callable[[], float]) -> float:
    """Of the middle times. Both take turns, in any order: whoever comes second finds the way warm."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for which in random.sample((0, 1), 2):
            times[which].append((one, other)[which]())
    return abs(median(times[0]) / median(times[1]) - 1)


#: Of the length of those that are known, and as many.
UNKNOWN = [f"none-{number}" for number in range(12)]


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("mechanism", "has_own_passwords"), [*((mechanism, False) for mechanism in MECHANISMS), ("PLAIN", True)]
)
def test_a_wrong_password_takes_as_long_as_an_unknown_name(mechanism: str, has_own_passwords: bool) -> None:
    known = users(4096)
    listener = Listener(known, has_own_passwords=has_own_passwords)
    names, others = cycle(known), cycle(UNKNOWN)
    assert (
        difference(lambda: listener.fail(mechanism, next(names))[0], lambda: listener.fail(mechanism, next(others))[0])
        < MOST
    )


def test_the_comparison_finds_a_leak() -> None:
    """The one that PLAIN had: unknown names were checked by the other mechanism than users are."""
    known = {f"user-{number}": {SHA_512: derive_credential(SHA_512, "x", b"salt")} for number in range(12)}
    leaking = Listener({"somebody": {SHA_256: derive_credential(SHA_256, "x", b"salt", 4096)}})
    leaking._sources.passwords._find = lambda name: _preferred(known.get(name))  # type: ignore[union-attr]
    names, others = cycle(known), cycle(UNKNOWN)
    assert (
        difference(lambda: leaking.fail("PLAIN", next(names))[0], lambda: leaking.fail("PLAIN", next(others))[0]) > MOST
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_comparison_finds_two_hashes_in_scram(mechanism: str) -> None:
    listener = Listener(users(4096))
    scram_users = listener._sources.scram_users
    assert scram_users is not None
    find = scram_users.find

    def find_and_hash_twice(of: ScramMechanism, name: str) -> ScramCredential | None:
        if (found := find(of, name)) is not None:
            hmac.digest(hmac.digest(found.salt, name.encode(), "sha512"), name.encode(), "sha512")
        return found

    msgspec.structs.force_setattr(scram_users, "find", find_and_hash_twice)
    names, others = cycle(users(4096)), cycle(UNKNOWN)
    assert (
        difference(lambda: listener.fail(mechanism, next(names))[0], lambda: listener.fail(mechanism, next(others))[0])
        > MOST
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_name_is_answered_in_the_same_words_and_as_long_ones(mechanism: str) -> None:
    known = users(4096, 8192)
    listener = Listener(known)
    shapes = {}
    for kind, names in (("known", list(known)), ("unknown", [f"none-{number}" for number in range(200)])):
        shapes[kind] = {
            tuple(_without_what_is_drawn(each) for each in listener.fail(mechanism, name)[1]) for name in names
        }
    assert shapes["known"] <= shapes["unknown"]
    if mechanism == "PLAIN":
        assert len(shapes["unknown"]) == 1


def _without_what_is_drawn(said: bytes) -> tuple[str, ...]:
    """The nonce's length, and whether the salt is one of Kafka's tools, which have 25 or 26 characters; the rest."""
    return tuple(_look(part[:2], part) for part in said.decode().split(","))


def _look(attribute: str, part: str) -> str:
    match attribute:
        case "r=":
            return str(len(part))
        case "s=":
            return "a tool's" if is_tool_salt(b64decode(part[2:])) else str(len(part))
        case _:
            return part
