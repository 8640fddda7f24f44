"""Bit rot for tests: flips single bits in the files of a node's data folder, chosen by kind and by seed."""

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Final

import msgspec

#: What a data folder is made of: where the files of each kind lie below it.
QUORUM_KINDS: Final = {
    "metadata log": "metadata-log/*.log",
    "metadata log, offset index": "metadata-log/*.index",
    "metadata log, time index": "metadata-log/*.timeindex",
    "metadata log, checksums": "metadata-log/*.checksum",
    "metadata log, checkpoints": "metadata-log/*-checkpoint",
    "vote": "quorum-state",
    "snapshot": "quorum-snapshot",
    "acknowledged": "quorum-acknowledged",
    "identity": "meta.properties",
    "copy of the identity": "meta.properties.copy",
    "reserve": "reserve",
}


class Flip(msgspec.Struct, frozen=True):
    path: str
    position: int
    bit: int

    def __str__(self) -> str:
        return f"bit {self.bit} of byte {self.position} of {self.path}"


def files_of(data_dir: Path, pattern: str) -> list[Path]:
    """Those of a kind that have any content, in the order of their names."""
    return sorted(path for path in data_dir.glob(pattern) if path.is_file() and path.stat().st_size)


def kinds_in(data_dir: Path, kinds: dict[str, str] = QUORUM_KINDS) -> list[str]:
    return [kind for kind, pattern in kinds.items() if files_of(data_dir, pattern)]


def kind_of(relative_path: str, kinds: dict[str, str] = QUORUM_KINDS) -> str | None:
    return next((kind for kind, pattern in kinds.items() if fnmatch(relative_path, pattern)), None)


def choose_flip(data_dir: Path, pattern: str, random: Random) -> Flip:
    """Any bit of any file of the kind; each byte is as likely as any other."""
    files = files_of(data_dir, pattern)
    path = random.choices(files, [file.stat().st_size for file in files])[0]
    return Flip(str(path), random.randrange(path.stat().st_size), random.randrange(8))


def carry_out(flip: Flip) -> None:
    """Whoever has the file open reads it so from now on."""
    descriptor = os.open(flip.path, os.O_RDWR)
    try:
        (byte,) = os.pread(descriptor, 1, flip.position)
        os.pwrite(descriptor, bytes([byte ^ 1 << flip.bit]), flip.position)
    finally:
        os.close(descriptor)


def flip_random_bit(data_dir: Path, pattern: str, random: Random) -> Flip:
    flip = choose_flip(data_dir, pattern, random)
    carry_out(flip)
    return flip


def each_bit_flipped(content: bytes, step: int = 1) -> Iterator[bytes]:
    """The content with each of its bits flipped in turn; with a step, only with each so many-th."""
    for position in range(0, 8 * len(content), step):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        yield bytes(damaged)
