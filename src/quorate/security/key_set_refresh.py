"""When the keys of a tokens' issuer are fetched again: it decides, and fetches nothing."""

from typing import Final

#: A token with a key that is not known may be forged: strangers do not decide how often the issuer is asked.
_MIN_INTERVAL_MS: Final = 10_000
_MAX_BACKOFF_MS: Final = 300_000


class KeySetRefresh:
    """Keys are fetched at the start, at intervals, and soon after a token came whose key is not among them.

    While fetching fails the keys that are there stay good: an issuer that is away locks nobody out.
    """

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        self._due_ms = now_ms
        self._began_ms: int | None = None
        self._is_fetching = False
        self._failures = 0

    def key_missed(self, now_ms: int) -> None:
        """A token's key is not known here."""
        self._due_ms = min(self._due_ms, max(now_ms, self._earliest_ms(now_ms)))

    def is_due(self, now_ms: int) -> bool:
        return not self._is_fetching and now_ms >= self._due_ms

    def due_ms(self) -> int | None:
        """When to ask again; None while a fetch is under way."""
        return None if self._is_fetching else self._due_ms

    def began(self, now_ms: int) -> None:
        self._is_fetching = True
        self._began_ms = now_ms

    def fetched(self, now_ms: int) -> None:
        self._is_fetching = False
        self._failures = 0
        self._due_ms = now_ms + self._interval_ms

    def failed(self, now_ms: int) -> None:
        self._is_fetching = False
        self._failures += 1
        backoff_ms = min(_MAX_BACKOFF_MS, _MIN_INTERVAL_MS * 2 ** min(self._failures - 1, 10))
        self._due_ms = now_ms + min(backoff_ms, self._interval_ms)

    def _earliest_ms(self, now_ms: int) -> int:
        return now_ms if self._began_ms is None else self._began_ms + _MIN_INTERVAL_MS * max(1, self._failures)
