"""One direction of a connection: bytes on their way, in order, late or not at all, never with a gap.

What belongs to the connection itself (the answer to a connect, the end, a reset) travels in the same order.
"""

from collections import deque
from enum import Enum
from typing import Protocol
from zlib import crc32

from tests.simulation.world.link import Link
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.trace import Trace


class Signal(Enum):
    CONNECT = "connect"
    ACCEPTED = "accepted"
    END = "end"
    RESET = "reset"


Packet = bytes | Signal

_SIGNAL_BYTES = 40


class Endpoint(Protocol):
    label: str

    def arrived(self, packet: Packet) -> None:
        """Something has reached the machine: the kernel's affair, its processes may be frozen."""
        ...

    def room_grew(self) -> None:
        """The receiver has taken something."""
        ...

    def timed_out(self) -> None:
        """Nothing gets through, for too long."""
        ...


class Stream:
    def __init__(self, scheduler: Scheduler, trace: Trace, forward: Link, backward: Link) -> None:
        self._scheduler = scheduler
        self._trace = trace
        self._forward = forward
        self._backward = backward
        self._packets: deque[tuple[float, Packet]] = deque()
        self._last_arrival = 0.0
        self._arrival_is_scheduled = False
        #: The first packet was lost; it is sent again when the link opens.
        self._is_held_up = False
        #: Since when packets, or the acknowledgements of them, do not get through.
        self._stalled_since: float | None = None
        #: Sent, and not known to have been taken by the receiver's process.
        self._outstanding_bytes = 0
        #: Taken, but word of it does not get back.
        self._withheld_bytes = 0
        self.sender: Endpoint
        self.receiver: Endpoint

    @property
    def room_bytes(self) -> int:
        return self._forward.settings.window_bytes - self._outstanding_bytes

    def send(self, packet: Packet) -> None:
        if isinstance(packet, Signal):
            self._queue(packet, _SIGNAL_BYTES)
            return
        size = len(packet)
        self._outstanding_bytes += size
        cut = self._forward.split_at(size)
        if cut:
            self._queue(packet[:cut], cut)
        self._queue(packet[cut:], size - cut)

    def taken(self, count: int) -> None:
        """The receiver's process has read some of it."""
        if not self._backward.is_open:
            self._withheld_bytes += count
            self._stall(self._backward)
        elif self.room_bytes > 0:
            self._outstanding_bytes -= count  # The sender does not wait for it: no need to tell it later.
        else:
            self._scheduler.call_at(self._backward.arrival_time(_SIGNAL_BYTES), self._acknowledge, count)

    def sender_lost_power(self) -> None:
        """What had left may still arrive; what waited to be sent again is gone with its sender."""
        if self._is_held_up:
            self._give_up()

    def try_again(self) -> None:
        self._is_held_up = False
        if self._withheld_bytes and self._backward.is_open:
            count, self._withheld_bytes = self._withheld_bytes, 0
            self._acknowledge(count)
        self._arrive()
        if self._withheld_bytes:
            self._stall(self._backward)

    def _queue(self, packet: Packet, size_bytes: int) -> None:
        self._last_arrival = max(self._last_arrival, self._forward.arrival_time(size_bytes))
        self._packets.append((self._last_arrival, packet))
        if not self._arrival_is_scheduled and not self._is_held_up:
            self._schedule_arrival()

    def _schedule_arrival(self) -> None:
        self._arrival_is_scheduled = True
        self._scheduler.call_at(self._packets[0][0], self._arrival_is_due)

    def _arrival_is_due(self) -> None:
        self._arrival_is_scheduled = False
        self._arrive()

    def _arrive(self) -> None:
        packets = self._packets
        forward = self._forward
        now = self._scheduler.now
        while packets and packets[0][0] <= now:
            if forward.is_blocked or not forward.leads_somewhere:
                self._is_held_up = True
                self._stall(forward)
                return
            self._deliver(packets.popleft()[1])
        if self._stalled_since is not None and not self._withheld_bytes:
            self._recovered()
        if packets and not self._arrival_is_scheduled:
            self._schedule_arrival()

    def _deliver(self, packet: Packet) -> None:
        what = f"{len(packet)} {crc32(packet):08x}" if isinstance(packet, bytes) else packet.value
        self._trace.note(f"{self.sender.label} > {self.receiver.label} {what}")
        self.receiver.arrived(packet)

    def _acknowledge(self, count: int) -> None:
        self._outstanding_bytes -= count
        self.sender.room_grew()

    def _stall(self, link: Link) -> None:
        link.wait_until_open(self)
        if self._stalled_since is None:
            now = self._stalled_since = self._scheduler.now
            self._scheduler.call_at(now + link.settings.unanswered_timeout_ms / 1000, self._lose_patience, now)

    def _recovered(self) -> None:
        if self._stalled_since is not None:
            self._stalled_since = None
            self._forward.forget(self)
            self._backward.forget(self)

    def _lose_patience(self, stalled_since: float) -> None:
        if self._stalled_since == stalled_since:
            self._give_up()
            self.sender.timed_out()

    def _give_up(self) -> None:
        self._packets.clear()
        self._withheld_bytes = 0
        self._is_held_up = False
        self._recovered()
