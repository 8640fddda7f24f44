"""Rates that clients are held to: which limit holds for a client, with whom it shares it, and how long it has to wait.

**Which quota holds** for a client, of all that could: the most specific one, in Apache Kafka's order. Users come before
client ids, names before defaults. A quota for users is shared by all clients of a user; one for client ids by all users
of the id; one for both is that pair's alone.

**What a client has used**: it may use at once what fits its window, and has to wait for more. The window is that of
Apache Kafka's configs, so many samples of so many seconds, and so are the times to wait for a client that uses a little
at a time. Apache Kafka forgets a sample when it is old enough, whether its time was waited for or not: who writes 5500
bytes at a time at 500 bytes per second gets 11000 through every 13 seconds there. Here, what was used is paid off at
the limit and in no other way, so that the rate holds for any size.

Pure: times come as arguments.
"""

from collections.abc import Hashable, Mapping
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from quorate.metadata.core.quota_entities import CLIENT_ID, USER, QuotaEntity, QuotaEntityPart, quota_entity

_FIRST_SWEEP_AT = 64
#: Of one quota, however many clients and addresses there are.
MOST_MEASURED = 32_768
_LONG_ID = 256
#: What an answer has room for.
_MOST_WAIT_MS = 2**31 - 1
KeyT = TypeVar("KeyT", bound=Hashable)
#: Who shares a measured rate: a user, a client id or both, with None for what plays no part.
Sharing = tuple[str | None, str | None]


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    sample_count: int = 11
    sample_size_ms: int = 1000

    @property
    def size_ms(self) -> int:
        """Of the samples that are complete: all but the one that is being counted in."""
        return max(1, self.sample_count - 1) * self.sample_size_ms

    @property
    def bucket_ms(self) -> int:
        """Of all samples, which is what Apache Kafka's token buckets hold."""
        return self.sample_count * self.sample_size_ms


class UsageWindow:
    """What one of them has used, and not paid off yet."""

    def __init__(self, size_ms: float, most_wait_ms: float | None = None) -> None:
        """Nobody has to wait for longer than ``most_wait_ms``: what would take longer to pay off is forgotten."""
        self._size_ms = size_ms
        self._most_ms = None if most_wait_ms is None else size_ms + most_wait_ms
        #: At the time of the last look.
        self._used = 0.0
        self._seen_at_ms = 0.0
        self._limit_per_second = 0.0

    def is_unused(self, now_ms: float) -> bool:
        """Whether all is paid off: a new object would say the same."""
        return self._unpaid(now_ms) == 0

    def use(self, amount: float, limit_per_second: float, now_ms: float) -> int:
        """Count the amount; returns for how many milliseconds nothing must come until it fits the window again."""
        self._limit_per_second = limit_per_second
        self._used = self._unpaid(now_ms) + amount
        self._seen_at_ms = now_ms
        if self._most_ms is not None:
            self._used = min(self._used, self._most_ms * limit_per_second / 1000)
        return self._wait_ms(self._used)

    def wait_ms_after(self, amount: float, limit_per_second: float, now_ms: float) -> int:
        """What ``use`` would return. Nothing is counted."""
        self._limit_per_second = limit_per_second
        return self._wait_ms(self._unpaid(now_ms) + amount)

    def _wait_ms(self, used: float) -> int:
        wait_ms = used * 1000 / self._limit_per_second - self._size_ms
        return 0 if wait_ms <= 0 else round(min(wait_ms, _MOST_WAIT_MS))

    def _unpaid(self, now_ms: float) -> float:
        return max(0.0, self._used - self._limit_per_second * (now_ms - self._seen_at_ms) / 1000)


class UsageTable(Generic[KeyT]):
    """Who has used how much, until it is paid off. Where they are very many, those that came first are forgotten."""

    def __init__(self, size_ms: float, most_wait_ms: float | None = None) -> None:
        self._size_ms = size_ms
        self._most_wait_ms = most_wait_ms
        self._windows: dict[KeyT, UsageWindow] = {}
        self._sweep_at = _FIRST_SWEEP_AT

    def __len__(self) -> int:
        return len(self._windows)

    def of(self, key: KeyT, now_ms: float) -> UsageWindow:
        window = self._windows.get(key)
        if window is None:
            self._sweep(now_ms)
            window = self._windows[key] = UsageWindow(self._size_ms, self._most_wait_ms)
        return window

    def clear(self) -> None:
        self._windows.clear()

    def _sweep(self, now_ms: float) -> None:
        """At a cost that new ones share."""
        if len(self._windows) < self._sweep_at:
            return
        kept = {key: window for key, window in self._windows.items() if not window.is_unused(now_ms)}
        if len(kept) > MOST_MEASURED // 2:
            kept = dict(islice(kept.items(), len(kept) - MOST_MEASURED // 2, None))
        self._windows = kept
        self._sweep_at = max(_FIRST_SWEEP_AT, 2 * len(kept))


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    per_second: float
    shared_by: Sharing


class QuotaTable:
    """The values of one quota, for finding what holds for a client. False where nobody has that quota."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._values = {entity: values[key] for entity, values in quotas.items() if key in values}

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> Limit | None:
        """Ids that are longer than any of a client that means well share what they use, by how they begin."""
        for entity, shared_by in _by_precedence(user, client_id):
            value = self._values.get(entity)
            if value is not None:
                return Limit(per_second=value, shared_by=shared_by)
        return None


def _by_precedence(user: str, client_id: str) -> list[tuple[QuotaEntity, Sharing]]:
    users = QuotaEntityPart(USER, user), QuotaEntityPart(USER, None)
    ids = QuotaEntityPart(CLIENT_ID, client_id), QuotaEntityPart(CLIENT_ID, None)
    candidates: list[tuple[QuotaEntity, Sharing]] = []
    for user_part in users:
        candidates.extend((quota_entity((user_part, id_part)), (user, client_id[:_LONG_ID])) for id_part in ids)
        candidates.append(((user_part,), (user, None)))
    candidates.extend(((id_part,), (None, client_id[:_LONG_ID])) for id_part in ids)
    return candidates


class RateQuota:
    """One kind of quota, and what those that it holds for have used."""

    def __init__(self, size_ms: float, most_wait_ms: float | None = None) -> None:
        """``size_ms`` is how much time's worth may be used at once."""
        self._size_ms = size_ms
        #: False while there is no such quota: what a request has to look at, and all where none is set.
        self.limits = QuotaTable({}, "")
        #: The limit of each client that was looked up since the quotas last changed.
        self._found: dict[tuple[str, str], Limit | None] = {}
        self._used: UsageTable[Sharing] = UsageTable(size_ms, most_wait_ms)

    def __len__(self) -> int:
        return len(self._used)

    def replace(self, limits: QuotaTable) -> None:
        self.limits = limits
        self._found.clear()
        if not limits:
            self._used.clear()

    def charge(self, user: str, client_id: str, amount: float, now_ms: float) -> int:
        """Count the amount; returns for how many milliseconds the client is to be held back."""
        limit = self._limit(user, client_id)
        if limit is None:
            return 0
        return self._used.of(limit.shared_by, now_ms).use(amount, limit.per_second, now_ms)

    def window_amount(self, user: str, client_id: str) -> int | None:
        """The most that fits the client's whole window, and so the most to give it at once; None without a quota."""
        limit = self._limit(user, client_id)
        return None if limit is None else max(1, int(limit.per_second * self._size_ms / 1000))

    def _limit(self, user: str, client_id: str) -> Limit | None:
        client = (user, client_id)
        if client not in self._found:
            if len(client_id) > _LONG_ID:
                return self.limits.find(user, client_id)
            if len(self._found) >= MOST_MEASURED:
                self._found.clear()
            self._found[client] = self.limits.find(user, client_id)
        return self._found[client]
