"""Reading a log where parts of it may have to be checked or repaired first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from quorate.kernel.errors import KafkaError
from quorate.replication.partition import Partition
from quorate.storage.reading import DamagedRecords

Result = TypeVar("Result")

#: Clients wait half a minute for an answer by default.
WAIT_S = 10.0


async def when_sound(partition: Partition, read: Callable[[], Result], *, waits_for_repair: bool = True) -> Result:
    """What ``read`` returns once its segments are checked; its error where they are damaged for good, or not soon."""

    async def read_now() -> Result:
        return read()

    return await when_found_sound(partition, read_now, waits_for_repair=waits_for_repair)


async def when_found_sound(
    partition: Partition, read: Callable[[], Awaitable[Result]], *, waits_for_repair: bool = True
) -> Result:
    """The same for a read that takes more than one turn of the loop."""
    while True:
        try:
            return await read()
        except KafkaError as error:
            again = partition.sound_again(error)
            if again is None or (isinstance(error, DamagedRecords) and not waits_for_repair):
                raise
            done, _ = await asyncio.wait([again], timeout=WAIT_S)
            if not done:
                raise
