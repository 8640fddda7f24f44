"""How far one follower has come, and when it last had everything, as its leader knows it."""

from quorate.kernel.ids import BrokerEpoch, Offset

NEVER_MS = -(1 << 62)


class FollowerProgress:
    """Holds for one leader epoch and one incarnation of the follower: within both, a matching log only grows."""

    __slots__ = ("_caught_up_ms", "_last_fetch_ms", "_log_end_at_last_fetch", "broker_epoch", "fetch_offset")

    def __init__(self, *, caught_up_ms: int) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        #: None until the follower has fetched: it may have anything or nothing.
        self.fetch_offset: Offset | None = None
        self._caught_up_ms = caught_up_ms
        self._last_fetch_ms = NEVER_MS
        self._log_end_at_last_fetch: Offset | None = None

    def fetched(self, broker_epoch: BrokerEpoch, fetch_offset: Offset, log_end_offset: Offset, now_ms: int) -> None:
        if self.broker_epoch is not None and broker_epoch < self.broker_epoch:
            return
        if self.broker_epoch is not None and broker_epoch > self.broker_epoch:
            self.forget()
        self.broker_epoch = broker_epoch
        if self.fetch_offset is not None and fetch_offset < self.fetch_offset:
            return  # A request that was overtaken on its way.
        self._note_caught_up(fetch_offset, log_end_offset, now_ms)
        self.fetch_offset = fetch_offset
        self._last_fetch_ms = now_ms
        self._log_end_at_last_fetch = log_end_offset

    def log_grew(self, old_end_offset: Offset, now_ms: int) -> None:
        """The leader appends: who had everything until now has not been lagging before."""
        if self.fetch_offset == old_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)

    def forget(self) -> None:
        """The follower was restarted: what its last life had on disk, this one may not have."""
        self.broker_epoch = None
        self.fetch_offset = None
        self._caught_up_ms = NEVER_MS
        self._last_fetch_ms = NEVER_MS
        self._log_end_at_last_fetch = None

    def is_caught_up(self, log_end_offset: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """A follower that stands at the log end has nothing to fetch, so silence does not make it lag."""
        return self.fetch_offset == log_end_offset or now_ms - self._caught_up_ms <= lag_time_max_ms

    def _note_caught_up(self, fetch_offset: Offset, log_end_offset: Offset, now_ms: int) -> None:
        if fetch_offset >= log_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif self._log_end_at_last_fetch is not None and fetch_offset >= self._log_end_at_last_fetch:
            # Under a steady load it never stands at the end, yet it has all that there was when it last asked.
            self._caught_up_ms = max(self._caught_up_ms, self._last_fetch_ms)
