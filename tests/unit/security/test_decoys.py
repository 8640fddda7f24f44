"""Users that nobody knows: nothing that a login shows tells them from those that there are."""

from collections import Counter

import pytest

from quorate.security.decoys import CredentialShape, Decoys, ShapeCounts, changed_counts, shapes_of
from quorate.security.scram_credentials import ScramCredential, ScramMechanism, is_tool_salt, new_salt

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
MECHANISMS = (SHA_256, SHA_512)
KEY = b"a key of the cluster, 32 bytes.."


def shape(
    mechanism: ScramMechanism = SHA_512, iterations: int = 4096, salt_bytes: int | None = None
) -> CredentialShape:
    return CredentialShape(mechanism=mechanism, iterations=iterations, salt_bytes=salt_bytes)


MIXED = {shape(): 60, shape(iterations=8192): 30, shape(iterations=8192, salt_bytes=64): 10, shape(SHA_256, 5000): 50}


def look(decoys: Decoys, name: str, mechanism: ScramMechanism = SHA_512) -> tuple[int, int | None]:
    credential = decoys.of(mechanism, name)
    return credential.iterations, None if is_tool_salt(credential.salt) else len(credential.salt)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_name_gets_the_same_on_every_node_and_after_every_start(mechanism: ScramMechanism) -> None:
    one, other = Decoys(KEY, MIXED), Decoys(KEY, dict(reversed(MIXED.items())))
    for name in ("nobody", "", "ü", "n" * 100_000):
        assert one.of(mechanism, name) == other.of(mechanism, name)
        assert one.preferred(name) == other.preferred(name)
    assert one.of(mechanism, "a") != one.of(mechanism, "b")
    assert one.of(mechanism, "a") != Decoys(KEY[::-1], MIXED).of(mechanism, "a")


def test_what_unknown_names_get_is_as_frequent_as_it_is_among_users() -> None:
    decoys = Decoys(KEY, MIXED)
    looks = Counter(look(decoys, f"user-{number}") for number in range(4000))

    assert set(looks) == {(4096, None), (8192, None), (8192, 64)}
    for found, share in (((4096, None), 0.6), ((8192, None), 0.3), ((8192, 64), 0.1)):
        assert abs(looks[found] / 4000 - share) < 0.04
    assert {look(decoys, f"user-{number}", SHA_256) for number in range(100)} == {(5000, None)}


def test_plain_checks_unknown_names_by_what_users_are_checked_by() -> None:
    """A user with both mechanisms is checked by one of them: the other is no sign of anybody."""
    counts = changed_counts({}, [], [*shapes_of({SHA_256: credential(4096), SHA_512: credential(4096)})] * 3)
    drawn = {Decoys(KEY, counts).preferred(f"user-{number}")[0] for number in range(200)}
    assert drawn == {SHA_512}
    counts = changed_counts(counts, [], shapes_of({SHA_256: credential(4096)}))
    drawn = {Decoys(KEY, counts).preferred(f"user-{number}")[0] for number in range(200)}
    assert drawn == {SHA_256, SHA_512}


def credential(iterations: int, salt: bytes = new_salt(b"s" * 17)) -> ScramCredential:
    return ScramCredential(salt=salt, stored_key=b"k" * 32, server_key=b"k" * 32, iterations=iterations)


def test_when_users_change_few_names_get_something_else_and_those_get_another_salt() -> None:
    before = Decoys(KEY, MIXED)
    after = Decoys(KEY, changed_counts(MIXED, [shape()] * 5, [shape(iterations=8192)] * 5))
    names = [f"user-{number}" for number in range(2000)]
    moved = [name for name in names if look(before, name) != look(after, name)]

    assert 0 < len(moved) < 2000 * 0.12
    for name in names:
        is_same_salt = before.of(SHA_512, name).salt == after.of(SHA_512, name).salt
        assert is_same_salt == (name not in moved)


def test_without_users_they_look_as_those_do_that_kafkas_tools_make() -> None:
    empty: ShapeCounts = {}
    for mechanism in MECHANISMS:
        assert look(Decoys(KEY, empty), "nobody", mechanism) == (4096, None)
        assert len(Decoys(KEY, empty).of(mechanism, "nobody").stored_key) == mechanism.key_bytes


@pytest.mark.parametrize(
    ("salt", "salt_bytes"), [(b"", 0), (bytes(range(64)), 64), (b"1" * 27, 27), (new_salt(b"x" * 17), None)]
)
def test_salts_of_other_tools_are_told_by_their_length(salt: bytes, salt_bytes: int | None) -> None:
    (found,) = shapes_of({SHA_512: credential(4096, salt)})
    assert found == shape(salt_bytes=salt_bytes)
    counts = changed_counts({}, [], [found])
    assert look(Decoys(KEY, counts), "nobody") == (4096, salt_bytes)


def test_what_is_gone_counts_no_more() -> None:
    counts = changed_counts({}, [], [shape(), shape()])
    assert changed_counts(changed_counts(counts, [shape()], []), [shape()], []) == {}
