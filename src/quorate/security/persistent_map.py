"""A mapping that never changes: a changed one is made beside it and shares with it whatever is the same.

For tables in the metadata image that may have 100,000 entries, of which a record changes one. Entries are spread over
buckets by their hash, about as many buckets as entries in each; a change copies one bucket and the row of buckets.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: With so many entries one bucket is enough.
_FEW: Final = 32


class PersistentMap(Mapping[Key, Value], Generic[Key, Value]):
    __slots__ = ("_buckets", "_count")

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        self._count = 0 if entries is None else len(entries)
        bucket_count = 1
        while self._count > _room(bucket_count):
            bucket_count *= 2
        #: As many as a power of two. None of them is ever written to again.
        self._buckets = _spread(entries or {}, bucket_count)

    def __getitem__(self, key: Key) -> Value:
        return self._buckets[hash(key) & (len(self._buckets) - 1)][key]

    def __iter__(self) -> Iterator[Key]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def with_entry(self, key: Key, value: Value) -> "PersistentMap[Key, Value]":
        index = hash(key) & (len(self._buckets) - 1)
        bucket = self._buckets[index]
        is_new = key not in bucket
        changed = self._with_bucket(index, {**bucket, key: value}, self._count + is_new)
        if changed._count > _room(len(changed._buckets)):
            changed._buckets = _spread(changed, 2 * len(changed._buckets))
        return changed

    def without(self, key: Key) -> "PersistentMap[Key, Value]":
        """Unchanged where there is no such key."""
        index = hash(key) & (len(self._buckets) - 1)
        bucket = self._buckets[index]
        if key not in bucket:
            return self
        rest = {other: value for other, value in bucket.items() if other != key}
        return self._with_bucket(index, rest, self._count - 1)

    def _with_bucket(self, index: int, bucket: dict[Key, Value], count: int) -> "PersistentMap[Key, Value]":
        changed: PersistentMap[Key, Value] = PersistentMap()
        changed._buckets = (*self._buckets[:index], bucket, *self._buckets[index + 1 :])
        changed._count = count
        return changed


def _room(bucket_count: int) -> int:
    return max(_FEW, bucket_count * bucket_count)


def _spread(entries: Mapping[Key, Value], bucket_count: int) -> tuple[dict[Key, Value], ...]:
    buckets: tuple[dict[Key, Value], ...] = tuple({} for _ in range(bucket_count))
    for key, value in entries.items():
        buckets[hash(key) & (bucket_count - 1)][key] = value
    return buckets
