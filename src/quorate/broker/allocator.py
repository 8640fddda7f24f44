"""What the C library's allocator keeps of large blocks of memory that were freed: nothing.

A block above a certain size is mapped by itself and goes back to the system when it is freed. The GNU C library raises
that size to the largest block that was ever freed, up to 32 MiB, and keeps smaller ones in the arena of each thread: a
few batches of many megabytes that workers opened would grow a node for good. A size that is set by hand stays.
"""

import ctypes

#: Requests of a megabyte, the most that producers send by default, stay below it: mapping a block costs time.
LARGE_BLOCK_BYTES = 4 * 1024 * 1024
_M_MMAP_THRESHOLD = -3


def return_large_blocks() -> None:
    """To be called before threads are started. Does nothing where the C library has no such setting."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
