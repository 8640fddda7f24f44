"""Batches whose records have to be opened: small ones where they are, all others by a worker, one at a time.

The records of one megabyte can take seconds to look at, and many megabytes of memory. One batch after the other means
that the memory of many is that of one.
"""

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any

import msgspec

from quorate.broker.request_time import RequestTimes
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.records.batch import BatchHeader, Compression
from quorate.records.errors import ExpandsTooFar
from quorate.records.validation import OpeningRules, open_batch
from quorate.storage.timestamps import TimeProbe, TimestampedOffset

logger = logging.getLogger(__name__)

#: What is opened on the loop in one turn, a few milliseconds at most: so many records of so many bytes.
SMALL_RECORDS = 1_000
_SMALL_BYTES = 64 * 1024
#: Records that are neither decompressed nor compressed cost by their number alone.
_SMALL_PLAIN_BYTES = 1024 * 1024


class ToOpen(msgspec.Struct, frozen=True):
    """A batch that has to be opened before it is stored."""

    batch: memoryview
    rules: OpeningRules


class RecordOpening:
    """Lets a worker open batches, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, times: RequestTimes) -> None:
        self._times = times
        self._loop = loop
        self._executor = executor
        self._turn = asyncio.Lock()
        self._turn_to_probe = asyncio.Lock()
        self._tasks = TaskScope(loop, logged_failures(logger, "write of opened records"))

    async def open(self, wanted: ToOpen) -> memoryview:
        async with self._turn:
            return await self._times.by_worker(self._loop, self._executor, open_or_refuse, wanted.batch, wanted.rules)

    async def step(self, probe: TimeProbe) -> TimestampedOffset | None:
        """Open what is stored, to find a time; those that write do not wait behind it."""
        async with self._turn_to_probe:
            return await self._times.by_worker(self._loop, self._executor, probe.step)

    def run(self, writing: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do it to the end, even if nobody waits any more: what was received is written, its sender may have gone."""
        return self._tasks.spawn(self._times.counted(writing))


def open_or_refuse(batch: memoryview, rules: OpeningRules) -> memoryview:
    """The batch as it is to be stored. Records that expand too far are too large: producers then split the batch."""
    try:
        return open_batch(batch, rules)
    except ExpandsTooFar as error:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the records of the batch expand beyond {rules.limit_bytes} bytes, which is the limit for this topic",
        ) from error


def open_small(batch: memoryview, header: BatchHeader, rules: OpeningRules, max_records: int) -> memoryview | None:
    """The batch as it is to be stored; None where it takes too long to find out."""
    if header.record_count > max_records or header.size_bytes > _most_bytes(header, rules):
        return None
    try:
        return open_batch(batch, msgspec.structs.replace(rules, limit_bytes=_most_bytes(header, rules)))
    except ExpandsTooFar:
        return None


def _most_bytes(header: BatchHeader, rules: OpeningRules) -> int:
    is_plain = header.compression is Compression.NONE and rules.codec in (None, Compression.NONE)
    return _SMALL_PLAIN_BYTES if is_plain else min(_SMALL_BYTES, rules.limit_bytes)
