"""A connection needs one descriptor, and a second one only while a full socket is watched for room."""

import asyncio
import os
import socket

from quorate.transport.outbox import SocketRoom


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_one_descriptor_a_connection() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            before = open_descriptors()
            room = SocketRoom(asyncio.get_running_loop(), ours.fileno(), 64 << 10)
            assert room.descriptor == ours.fileno()
            assert open_descriptors() == before
            assert room.watch(lambda: None)
            assert room.watch(lambda: None)
            assert open_descriptors() == before + 1
            room.unwatch()
            assert open_descriptors() == before
            assert room.watch(lambda: None)
            room.close()
            assert open_descriptors() == before
            assert ours.fileno() == room.descriptor  # The transport's own is left to it.

    asyncio.run(scenario())


def test_a_socket_with_room_is_told_while_it_is_watched() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            room = SocketRoom(asyncio.get_running_loop(), ours.fileno(), -1)
            told = asyncio.Event()
            assert room.watch(told.set)
            await told.wait()
            room.close()

    asyncio.run(scenario())
