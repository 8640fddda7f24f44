"""The raw load of ``benchmarks.generator`` for a cluster: each partition over its own connection to its leader.

Beside the load that goes as fast as it is acknowledged there is a paced one: so many requests a second, whether the
earlier ones are acknowledged or not. Its latencies run from the moment at which a request was due, so that a system
which stalls does not hide its stalls by slowing the client down.
"""

import select
import time
from collections.abc import Sequence

from benchmarks.channels import Batches, ProduceChannel
from benchmarks.cluster.systems import Address
from benchmarks.connection import RequestFailed
from benchmarks.generator import Load, drive

MAX_BYTES = 768 * 1024 * 1024
_MAX_UNANSWERED = 2048
_DRAIN_TIMEOUT_S = 30.0


def produce(leaders: Sequence[Address], topic: str, batches: Batches, *, depth: int, seconds: float) -> Load:
    """Keep ``depth`` requests in flight for each partition; ``leaders`` are in the order of the partitions."""
    max_requests = max(depth, MAX_BYTES // len(leaders) // batches.size_bytes)
    channels = [
        ProduceChannel(leader, topic, partition, batches, depth=depth, max_requests=max_requests)
        for partition, leader in enumerate(leaders)
    ]
    elapsed_s, cpu_s = drive(channels, seconds)
    return _load(channels, batches, elapsed_s, cpu_s)


def produce_paced(
    leaders: Sequence[Address], topic: str, batches: Batches, *, requests_per_second: float, seconds: float
) -> tuple[Load, list[float]]:
    """Spread over the partitions in turn; returns the latencies in µs too."""
    channels = [_PacedChannel(leader, topic, partition, batches) for partition, leader in enumerate(leaders)]
    poll = select.epoll()
    for channel in channels:
        poll.register(channel.socket.fileno(), select.EPOLLIN)
    by_descriptor = {channel.socket.fileno(): channel for channel in channels}
    cpu_before_s, started = time.process_time(), time.perf_counter()
    interval_s = 1 / requests_per_second
    count = int(requests_per_second * seconds)
    sent = 0
    try:
        while sent < count or any(not channel.is_done() for channel in channels):
            due_at = started + sent * interval_s
            now = time.perf_counter()
            while sent < count and due_at <= now:
                channels[sent % len(channels)].send_due(due_at)
                sent += 1
                due_at = started + sent * interval_s
            _serve(poll, by_descriptor, max(0.0, due_at - time.perf_counter()) if sent < count else 1.0)
            if time.perf_counter() > started + seconds + _DRAIN_TIMEOUT_S:
                raise RequestFailed(f"requests were still not answered {_DRAIN_TIMEOUT_S:.0f} s after the last was due")
        load = _load(channels, batches, time.perf_counter() - started, time.process_time() - cpu_before_s)
        return load, [latency for channel in channels for latency in channel.latencies_us]
    finally:
        poll.close()
        for channel in channels:
            channel.socket.close()


def _serve(poll: select.epoll, channels: dict[int, "_PacedChannel"], timeout_s: float) -> None:
    for descriptor, channel in channels.items():
        wanted = select.EPOLLIN | select.EPOLLOUT if channel.unsent else select.EPOLLIN
        if channel.mask != wanted:
            channel.mask = wanted
            poll.modify(descriptor, wanted)
    for descriptor, events in poll.poll(timeout_s):
        if events & select.EPOLLOUT:
            channels[descriptor].on_writable()
        if events & ~select.EPOLLOUT:
            channels[descriptor].on_readable()


class _PacedChannel(ProduceChannel):
    """Sends when it is told to, and keeps how long each answer took."""

    def __init__(self, address: Address, topic: str, partition: int, batches: Batches) -> None:
        super().__init__(address, topic, partition, batches, depth=_MAX_UNANSWERED, max_requests=0)
        self._due_at: list[float] = []
        self.latencies_us: list[float] = []
        self.mask: int = select.EPOLLIN

    def send_due(self, due_at: float) -> None:
        if len(self._due_at) - self.acknowledged >= _MAX_UNANSWERED:
            raise RequestFailed(
                f"{_MAX_UNANSWERED} requests were not answered: the load is more than there is room for"
            )
        self._due_at.append(due_at)
        self._send(1)

    def on_readable(self) -> None:
        before = self.acknowledged
        super().on_readable()
        now = time.perf_counter()
        self.latencies_us += [(now - due_at) * 1e6 for due_at in self._due_at[before : self.acknowledged]]


def _load(channels: Sequence[ProduceChannel], batches: Batches, elapsed_s: float, cpu_s: float) -> Load:
    requests = sum(channel.acknowledged for channel in channels)
    return Load(
        requests=requests,
        records=requests * batches.records_per_batch,
        size_bytes=requests * batches.size_bytes,
        seconds=elapsed_s,
        generator_cpu_seconds=cpu_s,
    )
