"""A mapping that is copied when it is first written to, so that untouched tables are shared between images."""

from collections.abc import Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class CopyOnWrite(Generic[Key, Value]):
    def __init__(self, base: Mapping[Key, Value]) -> None:
        self._own: dict[Key, Value] | None = None
        #: What a reader sees now; after the last write, what the next image keeps.
        self.current: Mapping[Key, Value] = base

    def __getitem__(self, key: Key) -> Value:
        return self.current[key]

    def get(self, key: Key) -> Value | None:
        return self.current.get(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._writable()[key] = value

    def pop(self, key: Key) -> Value:
        return self._writable().pop(key)

    def discard(self, key: Key) -> None:
        if key in self.current:
            self._writable().pop(key)

    def _writable(self) -> dict[Key, Value]:
        if self._own is None:
            self._own = dict(self.current)
            self.current = self._own
        return self._own
