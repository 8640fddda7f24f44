"""The logs of partitions in their folders: opened, removed and closed, in worker threads."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicId
from quorate.kernel.ports import Disk
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import MetadataImage, TopicIdPartition
from quorate.storage.checkpoints import read_topic_id
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.partition_folders import partition_folder, partition_index, remove_logs, set_aside

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Does something with every log of a job; one result each, in their order.
Job = Callable[[Sequence[Item]], Sequence[Result]]

_LOGS_A_JOB = 16

_JOBS_WHILE_SERVING = 2
#: While nobody waits for answers of this node.
_JOBS_AT_START_AND_STOP = 4


class _Opening(msgspec.Struct, frozen=True):
    identity: TopicIdPartition
    config: LogConfig
    #: What tells a folder that was removed from one that nobody knows.
    image: MetadataImage


class PartitionLogs:
    def __init__(
        self,
        data_dir: str,
        node_id: NodeId,
        disk: Disk,
        *,
        durability: Durability,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
    ) -> None:
        #: With ``os`` records count before a sync has stored the epoch that they are of.
        self._trusts_epochs = durability is Durability.OS
        self._data_dir = data_dir
        self._node_id = node_id
        self._disk = disk
        self._loop = loop
        self._executor = executor
        self._jobs = LogJobs(loop, executor, on_failure, jobs_at_a_time=_JOBS_AT_START_AND_STOP)

    def begin_serving(self) -> None:
        """From now on requests share the threads."""
        self._jobs.jobs_at_a_time = _JOBS_WHILE_SERVING

    async def clear_what_left(self, image: MetadataImage) -> None:
        """At the start, before any log is opened: see to the logs that are no longer, or not known to be, of this node.

        Topics were deleted and replicas moved away while this node was down. What the image merely does not know may
        be the only copy left.
        """
        await self._loop.run_in_executor(self._executor, self._clear_what_left, image)

    def open(
        self,
        identity: TopicIdPartition,
        config: LogConfig,
        image: MetadataImage,
        done: Callable[[PartitionLog | KafkaError], None],
    ) -> None:
        self._jobs.submit(identity.topic, self._open_all, _Opening(identity, config, image), done)

    def remove(self, identity: TopicIdPartition, log: PartitionLog, done: Callable[[], None]) -> None:
        """For good, with all that it holds. What cannot be removed now is looked at again at the next start."""
        self._jobs.submit(identity.topic, self._remove_all, log, lambda _: done())

    def set_aside(self, identity: TopicIdPartition, log: PartitionLog, done: Callable[[], None]) -> None:
        """Out of the way, with all that it holds: nobody knows why it should be here."""
        self._jobs.submit(identity.topic, self._set_aside_all, (log, identity.topic_id), lambda _: done())

    async def close(self, logs: Iterable[tuple[TopicIdPartition, PartitionLog]]) -> None:
        """Close the logs, so that the next start has nothing to check, and take no more work."""
        self._jobs.jobs_at_a_time = _JOBS_AT_START_AND_STOP
        self._jobs.drop()
        await self._jobs.wait_until_idle()
        for identity, log in logs:
            self._jobs.submit(identity.topic, _close_all, log, partial(_tell_unclosed, identity))
        await self._jobs.wait_until_idle()

    # In worker threads.

    def _clear_what_left(self, image: MetadataImage) -> None:
        for name in self._disk.list_directory(self._data_dir):
            directory = f"{self._data_dir}/{name}"
            index = partition_index(name)
            topic_id = None if index is None else read_topic_id(self._disk, directory)
            if index is None or topic_id is None:
                continue
            topic = image.topic_by_id(topic_id)
            state = None if topic is None else topic.partitions.get(index)
            if state is None or self._node_id not in state.replicas:
                self._clear(directory, topic_id, index, image)

    def _open_all(self, openings: Sequence[_Opening]) -> list[PartitionLog | KafkaError]:
        return [self._open(opening) for opening in openings]

    def _open(self, opening: _Opening) -> PartitionLog | KafkaError:
        identity = opening.identity
        try:
            directory = partition_folder(self._data_dir, identity.topic, identity.partition)
        except KafkaError as reserved:
            return reserved
        try:
            self._make_way(directory, identity, opening.image)
            log = PartitionLog.open(
                self._disk, directory, opening.config, trusts_disk=False, trusts_epochs=self._trusts_epochs
            )
            if read_topic_id(self._disk, directory) is None:
                log.store_topic_id(identity.topic_id)
        except (OSError, KafkaError) as error:
            logger.error("log not opened partition=%s-%s error=%s", identity.topic, identity.partition, error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return log

    def _make_way(self, directory: str, identity: TopicIdPartition, image: MetadataImage) -> None:
        """A folder left by an earlier topic of the same name is never mixed with this one."""
        found = read_topic_id(self._disk, directory)
        if found is not None and found != identity.topic_id:
            self._clear(directory, found, identity.partition, image)

    def _clear(self, directory: str, topic_id: TopicId, index: PartitionIndex, image: MetadataImage) -> None:
        """Delete a log that was removed from this node; keep any other out of the way."""
        if image.was_removed(topic_id, index, self._node_id):
            logger.info("log removed node=%s directory=%s topic_id=%s", self._node_id, directory, topic_id)
            remove_logs(self._disk, [directory])
        else:
            self._set_aside(directory, topic_id)

    def _set_aside(self, directory: str, topic_id: TopicId) -> None:
        stray = set_aside(self._disk, directory, topic_id)
        logger.error(
            "log set aside: the metadata does not say that it was removed node=%s directory=%s topic_id=%s kept_as=%s",
            self._node_id,
            directory,
            topic_id,
            stray,
        )

    def _set_aside_all(self, logs: Sequence[tuple[PartitionLog, TopicId]]) -> list[None]:
        for log, topic_id in logs:
            with suppress(KafkaError):  # Its disk fails or failed: what is there is kept as it is.
                log.close()
            self._set_aside(log.directory, topic_id)
        return [None] * len(logs)

    def _remove_all(self, logs: Sequence[PartitionLog]) -> list[None]:
        for log in logs:
            log.release()
        try:
            remove_logs(self._disk, [log.directory for log in logs])
        except OSError as error:
            logger.error("logs not removed directories=%s error=%s", ",".join(log.directory for log in logs), error)
        return [None] * len(logs)


def _close_all(logs: Sequence[PartitionLog]) -> list[KafkaError | None]:
    return [_close(log) for log in logs]


def _close(log: PartitionLog) -> KafkaError | None:
    try:
        log.close()
    except KafkaError as error:
        return error
    return None


def _tell_unclosed(identity: TopicIdPartition, error: KafkaError | None) -> None:
    if error is not None:
        logger.error("log not closed cleanly partition=%s-%s error=%s", identity.topic, identity.partition, error)


class LogJobs:
    """Work on logs, done by worker threads, several in a job.

    Few jobs run at a time, so that what producers have synced does not wait behind thousands of logs, nor the loop for
    threads that compute. Topics take turns: a small one does not wait for one of 10,000 partitions.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
        *,
        jobs_at_a_time: int,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._on_failure = on_failure
        self.jobs_at_a_time = jobs_at_a_time
        #: By topic and kind of job, in the order of the next turns.
        self._queues: dict[tuple[str, Job[Any, Any]], deque[tuple[Any, Callable[[Any], None]]]] = {}
        self._running = 0
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, topic: str, job: Job[Item, Result], item: Item, done: Callable[[Result], None]) -> None:
        """Have the job do the item in a worker thread, then call ``done`` in the loop."""
        self._queues.setdefault((topic, job), deque()).append((item, done))
        if self._running < self.jobs_at_a_time:
            # At the end of the turn, so that one job takes all that the turn has submitted.
            self._running += 1
            self._loop.call_soon(self._next)

    def drop(self) -> None:
        """Begin nothing of what waits."""
        self._queues.clear()

    async def wait_until_idle(self) -> None:
        while self._running:
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    def _next(self) -> None:
        if not self._queues or self._running > self.jobs_at_a_time:
            self._running -= 1
            if not self._running:
                idle, self._idle = self._idle, []
                for future in idle:
                    if not future.done():
                        future.set_result(None)
            return
        (topic, job), queue = next(iter(self._queues.items()))
        del self._queues[topic, job]
        taken = list(islice(queue, _LOGS_A_JOB))
        for _ in taken:
            queue.popleft()
        if queue:
            self._queues[topic, job] = queue  # Behind the other topics.
        running: asyncio.Future[Sequence[Any]]
        running = self._loop.run_in_executor(self._executor, job, [item for item, _ in taken])
        running.add_done_callback(lambda finished: self._finished(finished, [done for _, done in taken]))

    def _finished(self, finished: "asyncio.Future[Sequence[Any]]", callbacks: Sequence[Callable[[Any], None]]) -> None:
        try:
            if not finished.cancelled():
                for done, result in zip(callbacks, finished.result(), strict=True):
                    done(result)
        except Exception as error:
            self._on_failure(error)
        self._loop.call_soon(self._next)
