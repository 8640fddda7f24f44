"""One direction between two hosts: how long packets take, how many get lost on the way, and whether any get through."""

from math import log
from random import Random
from typing import Protocol

import msgspec

from tests.simulation.world.scheduler import Scheduler


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    delay_ms: float = 0.1
    #: The mean of what comes on top, exponentially distributed: this swaps the order between connections.
    jitter_ms: float = 0.3
    #: A lost packet comes after all, when TCP has sent it again.
    loss_probability: float = 0.0
    retransmission_ms: float = 200.0
    bytes_per_second: float | None = None
    #: How much of one connection may be under way, or lie unread at the receiver.
    window_bytes: int = 128 * 1024
    #: How often what was written at once arrives in two parts.
    split_probability: float = 0.02
    #: After this long without getting through, TCP gives up.
    connect_timeout_ms: float = 20_000.0
    unanswered_timeout_ms: float = 60_000.0


class Stalled(Protocol):
    """A connection that waits for the link."""

    def try_again(self) -> None: ...


class Link:
    def __init__(self, scheduler: Scheduler, random: Random, settings: LinkSettings) -> None:
        self._scheduler = scheduler
        self._random = random
        self.settings = settings
        self.is_blocked = False
        #: Whether the machine at the far end has power.
        self.leads_somewhere = True
        #: All that was ever sent, headers of packets left out.
        self.sent_bytes = 0
        self._free_at = 0.0
        self._stalled: dict[Stalled, float] = {}

    @property
    def is_open(self) -> bool:
        return self.leads_somewhere and not self.is_blocked

    def arrival_time(self, size_bytes: int) -> float:
        """When a packet that is sent now arrives."""
        self.sent_bytes += size_bytes
        settings = self.settings
        random = self._random
        delay_ms = settings.delay_ms
        if settings.jitter_ms:
            delay_ms -= log(1.0 - random.random()) * settings.jitter_ms  # Exponentially distributed.
        if settings.loss_probability:
            wait_ms = settings.retransmission_ms
            while random.random() < settings.loss_probability:
                delay_ms += wait_ms
                wait_ms *= 2
        sent_at = self._scheduler.now
        if settings.bytes_per_second is not None:
            sent_at = self._free_at = max(self._free_at, sent_at) + size_bytes / settings.bytes_per_second
        return sent_at + delay_ms / 1000

    def split_at(self, size_bytes: int) -> int:
        """Where to cut what is written at once; 0 for not at all."""
        if size_bytes > 1 and self._random.random() < self.settings.split_probability:
            return self._random.randrange(1, size_bytes)
        return 0

    def wait_until_open(self, stalled: Stalled) -> None:
        self._stalled.setdefault(stalled, self._scheduler.now)

    def forget(self, stalled: Stalled) -> None:
        self._stalled.pop(stalled, None)

    def change(self, *, blocked: bool | None = None, leads_somewhere: bool | None = None) -> None:
        if blocked is not None:
            self.is_blocked = blocked
        if leads_somewhere is not None:
            self.leads_somewhere = leads_somewhere
        if not self.is_open:
            return
        waiting, self._stalled = self._stalled, {}
        for stalled, since in waiting.items():
            # TCP waits longer after each vain attempt: it notices late that the way is free.
            longest_s = min(self._scheduler.now - since, 1.0)
            self._scheduler.call_at(self._scheduler.now + self._random.random() * longest_s, stalled.try_again)
