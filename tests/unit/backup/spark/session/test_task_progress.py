"""Running tasks tell the driver how far they are, and nobody else can."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from quorate.backup.spark.session.tasks import ProgressAddress, ProgressListener, ProgressReporter, TaskAdvance


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def listener() -> Iterator[ProgressListener]:
    listener = ProgressListener("127.0.0.1")
    yield listener
    listener.close()


def test_totals_arrive_while_the_task_runs(listener: ProgressListener) -> None:
    clock = Clock()
    reporter = ProgressReporter(listener.address, 3, clock)
    assert listener.advances() == [TaskAdvance(3, 0, 0)]

    reporter(100, 1)
    assert listener.advances() == []  # A few times a second are enough.
    clock.now_s += 1
    reporter(50, 2)
    clock.now_s += 1
    reporter(50, 2)

    assert listener.advances() == [TaskAdvance(3, 200, 5)]
    reporter.close()


def test_only_who_has_the_token_is_believed(listener: ProgressListener) -> None:
    address = listener.address
    stranger = ProgressReporter(ProgressAddress(address.host, address.port, b"another token...."), 0)
    stranger(10**9, 10**9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        for data in (b"", b"\xff" * 2000, msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode(["", 0, 0, 0])):
            other.sendto(data, (address.host, address.port))
        other.sendto(msgspec.msgpack.encode([address.token, 1, -5, 2**70 % 2**63]), (address.host, address.port))

    assert listener.advances() == [TaskAdvance(1, 0, 2**70 % 2**63)]
    stranger.close()


def test_driver_that_is_gone_is_no_matter_to_a_task() -> None:
    listener = ProgressListener("127.0.0.1")
    listener.close()
    clock = Clock()
    reporter = ProgressReporter(listener.address, 0, clock)
    for _ in range(5):
        clock.now_s += 1
        reporter(1, 1)
    reporter.close()
    reporter(1, 1)
    assert listener.advances() == []


def test_host_that_cannot_be_found_is_no_matter_to_a_task() -> None:
    reporter = ProgressReporter(ProgressAddress("no-such-host.invalid", 1, b""), 0)
    reporter(1, 1)
    reporter.close()
