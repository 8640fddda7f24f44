"""When to dial a peer again. Pure: lengths of time and randomness are handed in.

A link that ends is dialled again at once: that is how a killed process is told from a reset. A link to one and the same
process that ends again and again soon after it came up is not, so that it cannot keep the loop busy.
"""

from random import Random

from quorate.transport.peers.config import PeerConfig

_MAX_DOUBLINGS = 20


class ReconnectSchedule:
    def __init__(self, config: PeerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._failures = 0  # Attempts in a row that came to nothing.
        self._incarnation: int | None = None  # Of the process that the last link led to.
        self._short_links = 0  # Links to it in a row that did not last.

    def link_came_up(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._short_links = 0

    def link_ended(self, lasted_ms: float) -> float:
        """The delay in milliseconds before the next attempt."""
        self._failures = 0
        if lasted_ms >= self._config.reconnect_backoff_max_ms:
            self._short_links = 0
        delay_ms = self._delay_ms(self._short_links)
        self._short_links += 1
        return delay_ms

    def attempt_failed(self) -> float:
        """The delay in milliseconds before the next attempt."""
        self._failures += 1
        return self._delay_ms(self._failures)

    def peer_is_up(self) -> None:
        """The peer was heard of: earlier failures say nothing any more."""
        self._failures = 0

    def _delay_ms(self, times: int) -> float:
        if times == 0:
            return 0
        config = self._config
        longest_ms = config.reconnect_backoff_min_ms << min(times - 1, _MAX_DOUBLINGS)
        # Half of it is random, so that nodes that lost a peer together do not return in step.
        return min(longest_ms, config.reconnect_backoff_max_ms) * self._random.uniform(0.5, 1)
