"""The fewest frames that still fail, found by halving. Pure."""

from collections.abc import Callable

import msgspec


class Frames(msgspec.Struct, frozen=True):
    first: int
    count: int

    def halves(self) -> "tuple[Frames, Frames]":
        half = self.count // 2
        return Frames(self.first, half), Frames(self.first + half, self.count - half)


def minimize(frames: Frames, fails: Callable[[Frames], bool]) -> Frames:
    """Where neither half fails alone, it takes something of both, and nothing smaller is looked for."""
    while frames.count > 1:
        smaller = next((half for half in frames.halves() if fails(half)), None)
        if smaller is None:
            return frames
        frames = smaller
    return frames
