"""Finds where a log can be read again behind a batch that is broken. Pure: whether an offset can be read is asked."""

from collections.abc import Callable

from quorate.kernel.ids import Offset

# Larger steps would jump over sound batches between two broken ones.
_LARGEST_STEP = 1024


def find_sound_offset(is_sound: Callable[[Offset], bool], broken_offset: Offset, end_offset: Offset) -> Offset:
    """The offset at which the sound batch after ``broken_offset`` begins; ``end_offset`` where there is none.

    A broken batch does not tell its last offset in a way that could be believed, and a broker answers for every offset
    inside it with the same bytes. So offsets behind it are tried, in steps that grow, and then halved.
    """
    broken, step = broken_offset, 1
    while True:
        candidate = Offset(min(broken + step, end_offset))
        if candidate == end_offset or is_sound(candidate):
            break
        broken, step = candidate, min(step * 2, _LARGEST_STEP)
    while candidate - broken > 1:
        middle = Offset((broken + candidate) // 2)
        if is_sound(middle):
            candidate = middle
        else:
            broken = middle
    return candidate
