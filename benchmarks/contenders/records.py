"""The records that contenders copy: no two alike, the same in every run, cheap to make. Pure."""

import random
from collections.abc import Iterator
from typing import Final

#: Of a value: what does not compress. The rest is text, so that lz4 brings it to about a half.
RANDOM_SHARE: Final = 0.4
_WORDS: Final = 64
_WORD_BYTES: Final = 9
_AT_ONCE: Final = 256


def values(size_bytes: int) -> Iterator[bytes]:
    """Endless. None repeats: a compressor that looks beyond one batch finds no more than one that does not."""
    chance = random.Random(1)
    words = [chance.randbytes(4).hex().encode() + b" " for _ in range(_WORDS)]
    word_of_byte = [words[byte % _WORDS] for byte in range(256)]
    noise_bytes = int(size_bytes * RANDOM_SHARE)
    text_bytes = size_bytes - noise_bytes
    word_count = -(-text_bytes // _WORD_BYTES)
    stride = word_count * _WORD_BYTES
    while True:
        noise = chance.randbytes(_AT_ONCE * noise_bytes)
        text = b"".join(map(word_of_byte.__getitem__, chance.randbytes(_AT_ONCE * word_count)))
        for index in range(_AT_ONCE):
            start = index * stride
            yield noise[index * noise_bytes : (index + 1) * noise_bytes] + text[start : start + text_bytes]
