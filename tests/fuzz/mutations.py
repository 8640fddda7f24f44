"""Changes to the bytes of a sound frame: flips, cuts, splices, repeated parts and numbers put in their place."""

from random import Random
from struct import pack
from typing import Final

_NUMBERS: Final = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    pack(">i", 1 << 24),
)
_MOST_REPEATED: Final = 2000


def mutate(random: Random, frame: bytes, other: bytes) -> bytes:
    """The frame with one to three changes; ``other`` is what parts of are put into it."""
    changed = frame
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not changed:
            return random.randbytes(random.choice((1, 4, 8, 40)))
        changed = _CHANGES[random.randrange(len(_CHANGES))](random, changed, other)
    return changed


def _flip(random: Random, frame: bytes, _: bytes) -> bytes:
    at = random.randrange(len(frame))
    return b"%b%c%b" % (frame[:at], frame[at] ^ 1 << random.randrange(8), frame[at + 1 :])


def _overwrite(random: Random, frame: bytes, _: bytes) -> bytes:
    at, number = random.randrange(len(frame)), random.choice(_NUMBERS)
    return frame[:at] + number + frame[at + len(number) :]


def _insert(random: Random, frame: bytes, _: bytes) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + random.choice(_NUMBERS) + frame[at:]


def _cut(random: Random, frame: bytes, _: bytes) -> bytes:
    return frame[: random.randrange(len(frame) + 1)]


def _leave_out(random: Random, frame: bytes, _: bytes) -> bytes:
    first = random.randrange(len(frame))
    return frame[:first] + frame[first + random.choice((1, 2, 4, 16)) :]


def _repeat(random: Random, frame: bytes, _: bytes) -> bytes:
    first = random.randrange(len(frame))
    part = frame[first : first + random.choice((1, 4, 20, 100))]
    times = min(random.choice((2, 2, 10, 500)), max(1, _MOST_REPEATED // len(part)))
    return frame[:first] + part * times + frame[first:]


def _splice(random: Random, frame: bytes, other: bytes) -> bytes:
    first, second = random.randrange(len(frame) + 1), random.randrange(len(other) + 1)
    return frame[:first] + other[second : second + 4096]


def _other_version(random: Random, frame: bytes, _: bytes) -> bytes:
    return frame[:2] + random.choice((-1, 0, 1, 2, 9, 32767, random.randrange(20))).to_bytes(2, signed=True) + frame[4:]


def _other_api(random: Random, frame: bytes, _: bytes) -> bytes:
    return random.choice((-1, 32767, 1000, random.randrange(95))).to_bytes(2, signed=True) + frame[2:]


_CHANGES: Final = (_flip, _flip, _overwrite, _insert, _cut, _leave_out, _repeat, _splice, _other_version, _other_api)
