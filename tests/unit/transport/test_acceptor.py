"""Connections that the kernel has taken, on their way to the server."""

import asyncio
import logging
import socket
from typing import cast

import pytest

from quorate.transport.acceptor import Acceptor, ConnectionCaps, ConnectionQuotas, Door
from quorate.transport.connection import ServerConnection


def test_a_connection_that_cannot_be_opened_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listener = socket.create_server(("127.0.0.1", 0))

        async def fail(*_: object) -> None:
            raise RuntimeError("not today")

        acceptor = Acceptor(
            loop,
            [Door(sockets=[listener], open_connection=lambda _: lambda frame: None)],
            ConnectionQuotas(ConnectionCaps, None),
            lambda door: cast(ServerConnection, object()),
            lambda: None,
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(loop, "connect_accepted_socket", fail)
            acceptor.start(8)
            _, writer = await asyncio.open_connection(*listener.getsockname())
            while "failed" not in caplog.text:
                await asyncio.sleep(0)
            writer.close()
            acceptor.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "opening of an accepted connection failed error=not today" in caplog.text
