"""Memory that grows with what is written to it, without being moved or filled with zeros where the system can avoid it.

Large memory is a mapping of its own: the system gives a page of it only once something is written there, and takes all
of it back when it is let go.
"""

import mmap
from contextlib import suppress

#: From this size on it is a mapping.
_MAPPED_BYTES = 128 * 1024
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class GrowingMemory:
    def __init__(self, content: memoryview, capacity: int) -> None:
        """Holds a copy of the content at its start."""
        self._mapping: mmap.mmap | None = None
        #: What was written to, which is all that a mapping takes of the machine's memory.
        self.used_bytes = 0
        self._make(content, capacity)

    @property
    def is_large(self) -> bool:
        return self._mapping is not None

    def keep(self, start: int, end: int, capacity: int) -> None:
        """Move what lies there to the front, of larger memory where the capacity is beyond that of now."""
        size = end - start
        if capacity <= len(self.view):
            self.view[:size] = self.view[start:end]
        elif self._mapping is None or not self._extend(capacity):
            self._make(self.view[start:end], capacity)
        elif start:
            self.view[:size] = self.view[start:end]

    def _make(self, content: memoryview, capacity: int) -> None:
        size = len(content)
        if capacity < _MAPPED_BYTES:
            memory = bytearray(content)
            memory.extend(bytes(capacity - size))
            self.view = memoryview(memory)
            self.used_bytes = capacity
            return
        mapping = mmap.mmap(-1, capacity, flags=_FLAGS)
        view = memoryview(mapping)
        view[:size] = content
        self._mapping, self.view, self.used_bytes = mapping, view, size

    def _extend(self, capacity: int) -> bool:
        """Whether the system could do it; it cannot while a part of the memory is still looked at."""
        assert self._mapping is not None
        self.view.release()
        is_done = False
        with suppress(BufferError, SystemError, ValueError):
            self._mapping.resize(capacity)
            is_done = True
        self.view = memoryview(self._mapping)
        return is_done
