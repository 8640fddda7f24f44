"""Both sides of a connection, and what hostile or half sent bytes do to it."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from quorate.backup.spark.warm.messages import (
    ANSWERS,
    REQUESTS,
    ChannelLost,
    CommandHello,
    JobDone,
    KeeperSilence,
    RunJob,
    WarmChannel,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, WarmChannel]]:
    raw, theirs = socket.socketpair()
    channel = WarmChannel(theirs, REQUESTS)
    yield raw, channel
    raw.close()
    channel.close()


def test_a_message_arrives_as_it_was_sent(pair: tuple[socket.socket, WarmChannel]) -> None:
    raw, channel = pair
    sent = RunJob(b"work", [b"1", b"2"], {b"NAME": b"\xff"}, b"/tmp/\xfe", 0o22)
    WarmChannel(raw, ANSWERS).send(sent)
    assert channel.receive(10) == sent

    channel.send(JobDone([b"row"], 1))
    assert WarmChannel(raw, ANSWERS).receive(10) == JobDone([b"row"], 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        struct.pack(">I", 10) + b"half",
        struct.pack(">I", 4) + b"\xff\xff\xff\xff",
        struct.pack(">I", 1) + b"\x80",
        struct.pack(">I", 5000),
        struct.pack(">I", 2**32 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_bytes_that_say_nothing_end_the_connection(pair: tuple[socket.socket, WarmChannel], data: bytes) -> None:
    raw, channel = pair
    raw.sendall(data)
    raw.shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelLost):
        channel.receive(10, max_bytes=4096)


def test_silence_is_told_from_an_end(pair: tuple[socket.socket, WarmChannel]) -> None:
    raw, channel = pair
    with pytest.raises(KeeperSilence):
        channel.receive(0.01)
    raw.sendall(struct.pack(">I", 100) + b"half")
    with pytest.raises(KeeperSilence):
        channel.receive(0.01)


def test_end_of_the_other_side_is_seen_without_waiting(pair: tuple[socket.socket, WarmChannel]) -> None:
    raw, channel = pair
    assert not channel.has_ended()
    WarmChannel(raw, ANSWERS).send(CommandHello("token", None))
    assert not channel.has_ended()
    channel.receive(10)

    raw.close()

    assert channel.has_ended()


def test_who_reads_nothing_is_seen(pair: tuple[socket.socket, WarmChannel]) -> None:
    assert pair[1].takes_more()
    other, theirs = socket.socketpair()
    theirs.setblocking(False)
    full = WarmChannel(theirs, REQUESTS)
    with suppress(BlockingIOError):
        while True:
            theirs.send(b"x" * 65536)
    assert not full.takes_more()
    other.close()
    full.close()
