"""The raw load, the same for both systems: a few connections driven by one epoll loop in one thread.

What is timed is the system, not the client; ``Load`` says how much CPU the client took, so that a row where the client
was the limit can be told from one where the system was.
"""

import select
import socket
import ssl
import time
from collections.abc import Sequence

import msgspec

from benchmarks import wire
from benchmarks.channels import Batches, Channel, FetchChannel, ProduceChannel
from benchmarks.connection import RequestFailed

POLL_TIMEOUT_S = 30.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did. Bytes are those of record batches, as acknowledged or received."""

    requests: int
    records: int
    size_bytes: int
    seconds: float
    generator_cpu_seconds: float
    end_offsets: tuple[int, ...] = ()


def produce(
    address: tuple[str, int],
    topic: str,
    batches: Batches,
    *,
    connections: int,
    depth: int,
    seconds: float,
    max_bytes: int,
    trust: ssl.SSLContext | None = None,
) -> Load:
    """Keep ``depth`` requests in flight on each connection, each connection writing to its own partition."""
    max_requests = max(depth, max_bytes // connections // batches.size_bytes)
    channels = [
        ProduceChannel(address, topic, partition, batches, depth=depth, max_requests=max_requests, trust=trust)
        for partition in range(connections)
    ]
    elapsed_s, cpu_s = drive(channels, seconds)
    requests = sum(channel.acknowledged for channel in channels)
    return Load(
        requests=requests,
        records=requests * batches.records_per_batch,
        size_bytes=requests * batches.size_bytes,
        seconds=elapsed_s,
        generator_cpu_seconds=cpu_s,
        end_offsets=tuple(channel.next_offset for channel in channels),
    )


def fetch(
    address: tuple[str, int],
    topic: str,
    batches: Batches,
    end_offsets: Sequence[int],
    *,
    seconds: float,
    trust: ssl.SSLContext | None = None,
) -> Load:
    """Read the partitions, each over its own connection, until the time is over."""
    channels = [
        FetchChannel(address, topic, partition, batches, end_offset, trust=trust)
        for partition, end_offset in enumerate(end_offsets)
    ]
    elapsed_s, cpu_s = drive(channels, seconds)
    received = sum(channel.batches_received for channel in channels)
    return Load(
        requests=sum(channel.requests for channel in channels),
        records=received * batches.records_per_batch,
        size_bytes=received * batches.size_bytes,
        seconds=elapsed_s,
        generator_cpu_seconds=cpu_s,
    )


def produce_one_by_one(
    address: tuple[str, int], topic: str, batches: Batches, *, seconds: float
) -> tuple[Load, list[float]]:
    """One connection, one request at a time, blocking: the latencies, in µs, of a caller that waits for each write."""
    layout = wire.ProduceResponseLayout(topic)
    frames = [bytearray(b"".join(wire.produce_request(topic, 0, batch))) for batch in batches.content]
    answer = bytearray(layout.size_bytes)
    latencies_us: list[float] = []
    with socket.create_connection(address, timeout=POLL_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(True)
        cpu_before_s, started = time.process_time(), time.perf_counter()
        now = started
        while now < started + seconds:
            correlation_id = len(latencies_us)
            frame = frames[correlation_id % len(frames)]
            wire.patch_correlation_id(frame, correlation_id)
            sent_at = time.perf_counter()
            connection.sendall(frame)
            received = connection.recv_into(answer, layout.size_bytes, socket.MSG_WAITALL)
            now = time.perf_counter()
            latencies_us.append((now - sent_at) * 1e6)
            if received != layout.size_bytes or layout.fields.unpack_from(answer)[3] != 0:
                raise RequestFailed(f"Produce answered {received} bytes, or an error: {bytes(answer[:64])!r}")
    count = len(latencies_us)
    load = Load(
        requests=count,
        records=count * batches.records_per_batch,
        size_bytes=count * batches.size_bytes,
        seconds=now - started,
        generator_cpu_seconds=time.process_time() - cpu_before_s,
    )
    return load, latencies_us


def drive(channels: Sequence[Channel], seconds: float) -> tuple[float, float]:
    """Run the channels until the time is over and nothing is in flight. Elapsed and own CPU seconds."""
    poll = select.epoll()
    active = {channel.socket.fileno(): channel for channel in channels}
    masks = dict.fromkeys(active, select.EPOLLIN)
    for descriptor in active:
        poll.register(descriptor, select.EPOLLIN)
    cpu_before_s, started = time.process_time(), time.perf_counter()
    try:
        for channel in channels:
            channel.deadline = started + seconds
            channel.start()
        while active:
            _rearm(poll, active, masks)
            _dispatch(poll, active)
        return time.perf_counter() - started, time.process_time() - cpu_before_s
    finally:
        poll.close()
        for channel in channels:
            channel.socket.close()


def _dispatch(poll: select.epoll, active: dict[int, Channel]) -> None:
    ready = poll.poll(POLL_TIMEOUT_S)
    if not ready:
        raise RequestFailed(f"no answer for {POLL_TIMEOUT_S:.0f} s")
    for descriptor, events in ready:
        channel = active[descriptor]
        if events & select.EPOLLOUT:
            channel.on_writable()
        if events & ~select.EPOLLOUT:
            channel.on_readable()
        if channel.is_done():
            poll.unregister(descriptor)
            del active[descriptor]


def _rearm(poll: select.epoll, active: dict[int, Channel], masks: dict[int, int]) -> None:
    """Ask for writability only where something waits to be sent."""
    for descriptor, channel in active.items():
        mask = select.EPOLLIN | select.EPOLLOUT if channel.wants_room else select.EPOLLIN
        if masks[descriptor] != mask:
            masks[descriptor] = mask
            poll.modify(descriptor, mask)
