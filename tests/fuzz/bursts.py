"""Frames by number: what one connection says, how it is cut into pieces, and how the connection ends.

Everything follows from the seed and the number of the burst, so that any of them can be sent again alone.
"""

import enum
from random import Random
from typing import Protocol

import msgspec


class Ending(enum.Enum):
    #: Read until all is answered, or for as long as something comes.
    ANSWERED = enum.auto()
    #: Say that there is no more, and read what comes.
    HALF_CLOSED = enum.auto()
    #: With answers unread.
    HASTY = enum.auto()
    #: In the middle of the last frame.
    CUT_OFF = enum.auto()


class Claim(msgspec.Struct, frozen=True):
    """Who proves to know the cluster's secret, and to whom."""

    own: int
    meant: int


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    #: With their lengths.
    frames: tuple[bytes, ...]
    #: The bytes are sent in pieces of about this size; 0 sends them at once.
    piece_bytes: int
    ending: Ending
    #: Whether the rest is sent when the first frame was answered.
    waits_after_first: bool = False
    #: What comes before the first frame; None for a stranger.
    proves: Claim | None = None

    def between(self, first: int, end: int) -> "Burst":
        """Only the frames at these places; and the first, where the others are not listened to without it."""
        places = range(max(0, first), min(end, len(self.frames)))
        kept = tuple(
            frame
            for place, frame in enumerate(self.frames)
            if place in places or (place == 0 and self.waits_after_first)
        )
        return msgspec.structs.replace(self, frames=kept)

    def pieces(self) -> list[bytes]:
        """What is sent at once, one after the other."""
        head, rest = b"", b"".join(self.frames)
        if self.waits_after_first:
            head, rest = self.frames[0], rest[len(self.frames[0]) :]
        if self.ending is Ending.CUT_OFF and rest:
            rest = rest[: len(rest) - max(1, len(self.frames[-1]) // 2)]
        size_bytes = max(self.piece_bytes, len(rest) // 20) if self.piece_bytes else len(rest)
        pieces = [rest[at : at + size_bytes] for at in range(0, len(rest), max(1, size_bytes))]
        return [head, *pieces] if head else pieces


class Bursts(Protocol):
    """All bursts of a seed. The frame with an index is in the burst of that index, divided by the frames of each."""

    frames_per_burst: int

    def burst(self, number: int) -> Burst: ...


def random_of(seed: int, number: int) -> Random:
    return Random(f"{seed}/{number}")


def choose_ending(random: Random) -> tuple[int, Ending]:
    piece_bytes = random.choice((1, 7, 100, 1000)) if random.random() < 0.1 else 0
    (ending,) = random.choices(tuple(Ending), weights=(80, 5, 10, 5))
    return piece_bytes, ending
