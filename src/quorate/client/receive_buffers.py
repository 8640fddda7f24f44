"""Memory for large answers, used again and again: fresh pages cost more than copying bytes into warm ones.

A buffer belongs to whoever took it until it is given back; one that is never given back is simply collected.
"""

import threading

MIN_BUFFER_BYTES = 64 * 1024
DEFAULT_KEPT_BYTES = 64 * 1024 * 1024


class ReceiveBuffers:
    def __init__(self, kept_bytes: int = DEFAULT_KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._free: list[bytearray] = []
        self._free_bytes = 0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bytearray:
        """A buffer of at least this size; its content is whatever was there before."""
        with self._lock:
            fitting = [index for index, buffer in enumerate(self._free) if len(buffer) >= size_bytes]
            if fitting:
                buffer = self._free.pop(min(fitting, key=lambda index: len(self._free[index])))
                self._free_bytes -= len(buffer)
                return buffer
        # Powers of two, so that answers of slightly different sizes share their buffers.
        return bytearray(max(MIN_BUFFER_BYTES, 1 << (size_bytes - 1).bit_length()))

    def give_back(self, buffer: bytearray) -> None:
        """Nobody may look at the buffer any more. The smallest ones go when more is free than is worth keeping."""
        with self._lock:
            self._free.append(buffer)
            self._free_bytes += len(buffer)
            while self._free_bytes > self._kept_bytes:
                smallest = min(range(len(self._free)), key=lambda index: len(self._free[index]))
                self._free_bytes -= len(self._free.pop(smallest))
