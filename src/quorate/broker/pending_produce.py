"""A Produce request that waits until all of its partitions have committed what it wrote, or its time is up."""

import asyncio
from collections.abc import Callable

from quorate.broker.partition import Partition
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset

_TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


class PendingProduce:
    """Counts down; ``future`` gets the errors by position, None where a partition committed in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self._errors: dict[int, KafkaError | None] = {}
        self._waiting: set[int] = set()
        self._sealed = False
        self.future: asyncio.Future[dict[int, KafkaError | None]] = loop.create_future()
        self._timer = loop.call_later(timeout_ms / 1000, self._time_out)

    def add(self, position: int, partition: Partition, end_offset: Offset) -> None:
        self._waiting.add(position)
        partition.when_committed(end_offset, self._callback(position))

    def seal(self) -> None:
        """Nothing more will be added: finish as soon as nothing is waited for."""
        self._sealed = True
        self._finish_if_done()

    def _callback(self, position: int) -> Callable[[KafkaError | None], None]:
        def committed(error: KafkaError | None) -> None:
            if position in self._waiting:
                self._waiting.discard(position)
                self._errors[position] = error
                self._finish_if_done()

        return committed

    def _time_out(self) -> None:
        for position in self._waiting:
            self._errors[position] = _TIMED_OUT
        self._waiting.clear()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._sealed and not self._waiting:
            self._timer.cancel()
            if not self.future.done():
                self.future.set_result(self._errors)
