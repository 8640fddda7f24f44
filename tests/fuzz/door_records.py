"""TLS records that are changed on their way, and records that belong nowhere. Pure."""

from random import Random
from struct import pack
from typing import Final

from tests.fuzz.door_line import Mangle
from tests.fuzz.mutations import mutate

_CHANGE_CIPHER_SPEC: Final = b"\x14\x03\x03\0\1\1"
_WARNING: Final = b"\x15\x03\x03\0\2\1\x64"
_FATAL: Final = b"\x15\x03\x03\0\2\2\x28"
_HEARTBEAT: Final = b"\x18\x03\x02\0\3\1\x40\0"
#: A client that is asked to begin again; a server does not obey a client that says so.
_HELLO_REQUEST: Final = b"\x16\x03\x03\0\4\0\0\0\0"
_MOST_PIECES: Final = 600


def stray_record(random: Random) -> bytes:
    """One that nobody waits for, or something that is no record."""
    content = random.randbytes(random.choice((0, 1, 100, 16_384)))
    return random.choice(
        (
            _CHANGE_CIPHER_SPEC * random.choice((1, 40)),
            _WARNING * random.choice((1, 10)),
            _FATAL,
            _HEARTBEAT,
            _HELLO_REQUEST * random.choice((1, 50)),
            pack(">BHH", random.choice((20, 21, 22, 23, 24, 99)), 0x0303, len(content)) + content,
            pack(">BHH", 22, 0x0301, random.choice((0, 65_535, 16_385))) + content,
            b"\x17\x03\x03\0\0" * random.choice((1, 100)),
            # A ClientHello that is said to be as long as can be.
            b"\x16\x03\x01\x40\0\x01\xff\xff\xff\x03\x03" + content,
            b"\x80\x2e\1\0\2\0\x15\0\0\0\x10" + content,
            b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
            pack(">ihhih", 10, 18, 0, 1, -1),
            b"SSH-2.0-fuzz\r\n",
            content,
        )
    )


def mangling(random: Random) -> Mangle:
    """Changes one flight of the first few, or each, always in the same way."""
    at = random.choice((0, 0, 0, 1, 1, 2, 3, None))
    how = random.randrange(9)

    def mangle(number: int, flight: bytes) -> list[bytes]:
        return _mangled(random, how, flight) if at in (None, number) else [flight]

    return mangle


def _mangled(random: Random, how: int, flight: bytes) -> list[bytes]:
    match how:
        case 0:
            size = max(1, len(flight) // _MOST_PIECES)
            return [flight[at : at + size] for at in range(0, len(flight), size)]
        case 1:
            return [flight[: random.randrange(len(flight) + 1)]]
        case 2:
            return [flight, flight]
        case 3:
            return [stray_record(random), flight]
        case 4:
            cut = random.randrange(len(flight) + 1)
            return [flight[:cut], stray_record(random), flight[cut:]]
        case 5:
            return [flight, stray_record(random)]
        case 6 if len(flight) > 5:
            # Another kind of record, or another version.
            place = random.randrange(5)
            return [flight[:place] + random.randbytes(1) + flight[place + 1 :]]
        case 7 if len(flight) > 6:
            return _as_fragments(random, flight)
        case _:
            return [mutate(random, flight, flight)]


def _as_fragments(random: Random, flight: bytes) -> list[bytes]:
    """The first record as many."""
    head, length = flight[:3], int.from_bytes(flight[3:5])
    content, rest = flight[5 : 5 + length], flight[5 + length :]
    size = max(random.choice((1, 7, 100)), len(content) // _MOST_PIECES)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return [b"".join(head + pack(">H", len(piece)) + piece for piece in pieces) + rest]
