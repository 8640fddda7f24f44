"""How long the fuzz waits for answers: by what the node gets done, and not by the clock alone."""

import asyncio
from struct import pack, unpack

from tests.fuzz.attack import Tally, Target, attack
from tests.fuzz.bursts import Burst, Ending

_SLOWLY_S = 0.1
_BURST = Burst(number=0, frames=(pack(">ii", 4, 1), pack(">ii", 4, 2)), piece_bytes=0, ending=Ending.ANSWERED)


class _BusyNode:
    """Answers a client slowly, and a burst only when it has answered the client so many times after it."""

    def __init__(self, answers_first: int) -> None:
        self._answers_first = answers_first
        self._due: list[asyncio.StreamWriter] = []
        self._answers_since = 0

    async def attacked(self) -> Tally:
        async with (
            await asyncio.start_server(self._serve_client, "127.0.0.1", 0) as client_port,
            await asyncio.start_server(self._serve_burst, "127.0.0.1", 0) as port,
        ):
            addresses = [server.sockets[0].getsockname() for server in (port, client_port)]
            return await attack(lambda _: Target(*addresses), [_BURST])

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(4):
            await reader.readexactly(*unpack(">i", head))
            await asyncio.sleep(_SLOWLY_S)
            writer.write(pack(">ii", 4, 0))
            self._answers_since += bool(self._due)
            if self._due and self._answers_since == self._answers_first:
                self._due.pop().write(b"".join(_BURST.frames))
        writer.close()

    async def _serve_burst(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in _BURST.frames:
            await reader.readexactly(8)
        self._due.append(writer)
        await reader.read()
        writer.close()


def test_a_busy_node_is_waited_for() -> None:
    tally = asyncio.run(_BusyNode(answers_first=6).attacked())

    assert (tally.frames, tally.answers, tally.ended) == (2, 2, 0)


def test_a_request_that_is_left_unanswered_while_others_are_answered_is_not_waited_for() -> None:
    tally = asyncio.run(_BusyNode(answers_first=1_000_000).attacked())

    assert (tally.frames, tally.answers, tally.ended) == (2, 0, 0)
