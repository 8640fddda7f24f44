"""How far a node has come with what it is sent: seen by asking it, again and again, what any client may ask."""

import asyncio
from contextlib import suppress
from struct import Struct

from quorate.protocol.apis import ApiKey

_LENGTH = Struct(">i")
_REQUEST = Struct(">ihhih")
_PAUSE_S = 0.02
#: A node that leaves the simplest request unanswered for longer is not waited for: the campaign finds out why.
_STOPPED_AFTER_S = 60


class Pulse:
    """It beats when the node has answered a request that was sent after the last beat.

    A busy node beats slowly. So what it was sent before several beats has been read by now, however busy it is.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.beats = 0
        self._address = address
        self._task = asyncio.get_running_loop().create_task(self._beat())

    @property
    def has_stopped(self) -> bool:
        return self._task.done()

    async def end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError, OSError, EOFError):
            await self._task

    async def _beat(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                async with asyncio.timeout(_STOPPED_AFTER_S):
                    writer.write(_REQUEST.pack(_REQUEST.size - _LENGTH.size, ApiKey.API_VERSIONS, 0, self.beats, -1))
                    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                    await reader.readexactly(length)
                self.beats += 1
                await asyncio.sleep(_PAUSE_S)
        finally:
            writer.close()
