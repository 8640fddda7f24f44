"""A Produce request that waits until all of its partitions have committed what it wrote, or its time is up.

One with ``acks=1`` waits where the leader alone is in sync. It has what it asked for as soon as the leader's log has
the record, so its time being up is no error.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.replication.partition import CommitCallback, Partition

T = TypeVar("T")

_TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

#: Where the answer stands in the response, and the high watermark that makes it true.
UncommittedWrite = tuple[int, Partition, Offset]


class PendingProduce(Generic[T]):
    """Counts down; ``future`` gets what ``respond`` makes of the errors by position, of which a partition that has
    committed in time has none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timeout_ms: int,
        writes: Sequence[UncommittedWrite],
        respond: Callable[[dict[int, KafkaError]], T],
        *,
        acks_all: bool = True,
    ) -> None:
        self._acks_all = acks_all
        self._respond = respond
        self._errors: dict[int, KafkaError] = {}
        #: By position: the partition that has not answered yet, and what it is to call.
        self._waiting = {
            position: (partition, cast(CommitCallback, partial(self._settle, position)))
            for position, partition, _ in writes
        }
        self.future: asyncio.Future[T] = loop.create_future()
        self._timer = loop.call_later(timeout_ms / 1000, self._time_out)
        for position, partition, end_offset in writes:
            wait = partition.when_committed if acks_all else partition.when_readable
            wait(end_offset, self._waiting[position][1])

    def _settle(self, position: int, error: KafkaError | None) -> None:
        if position not in self._waiting:
            return  # It came after the time was up.
        del self._waiting[position]
        if error is not None:
            self._errors[position] = error
        if not self._waiting:
            self._finish()

    def _time_out(self) -> None:
        if self._acks_all:
            self._errors.update(dict.fromkeys(self._waiting, _TIMED_OUT))
        for partition, callback in self._waiting.values():
            partition.give_up(callback)
        self._waiting.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        if self.future.done():
            return  # Nobody waits any more.
        try:
            self.future.set_result(self._respond(self._errors))
        except Exception as error:
            self.future.set_exception(error)
