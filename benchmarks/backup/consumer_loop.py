"""The contender consumer loop: confluent-kafka with its defaults, writing each record to its partition's file.

As many processes as its argument says, each with its share of the partitions. A record is kept with its offset, time,
key and value; each file is synced at its end, as the backup's are.
"""

import multiprocessing
import os
import resource
import struct
import sys
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import BinaryIO, TypeAlias

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from benchmarks.contenders.jobs import Copied, Job, serve_jobs

RECORD_START = struct.Struct(">qqii")
_MESSAGES_AT_ONCE = 10_000
_TIMEOUT_S = 30.0
_FILE_BUFFER_BYTES = 1024 * 1024
_ALL_BUFFERS_BYTES = 64 * 1024 * 1024

_Files: TypeAlias = dict[tuple[str | None, int | None], BinaryIO]


def consume_topic(workers: Pool, processes: int, job: Job) -> Copied:
    partitions = [(topic, partition) for topic in job.topics for partition in range(len(job.end_offsets))]
    shares = [partitions[first::processes] for first in range(processes)]
    done = workers.map(partial(_consume_partitions, job), shares, chunksize=1)
    return Copied(records=sum(count for count, _ in done), peak_task_memory_bytes=max(peak for _, peak in done))


def _consume_partitions(job: Job, partitions: list[tuple[str, int]]) -> tuple[int, int]:
    left = sum(job.end_offsets[partition] for _, partition in partitions)
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "benchmark", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
    buffering = min(_FILE_BUFFER_BYTES, _ALL_BUFFERS_BYTES // len(partitions))
    files: _Files = {
        (topic, partition): (Path(job.folder) / f"{topic}-{partition}").open("wb", buffering=buffering)
        for topic, partition in partitions
    }
    count = 0
    while count < left:
        # Not more than there are: it would wait for them until the timeout.
        messages = consumer.consume(min(_MESSAGES_AT_ONCE, left - count), _TIMEOUT_S)
        if not messages:
            raise TimeoutError(f"{left - count} records did not come within {_TIMEOUT_S:.0f} s")
        for message in messages:
            _write_record(files, message)
        count += len(messages)
    for file in files.values():
        file.flush()
        os.fsync(file.fileno())
        file.close()
    consumer.close()
    return count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _write_record(files: _Files, message: Message) -> None:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    key, value = message.key() or b"", message.value() or b""
    start = RECORD_START.pack(message.offset(), message.timestamp()[1], len(key), len(value))
    files[message.topic(), message.partition()].write(b"".join((start, key, value)))


def main() -> None:
    processes = int(sys.argv[1])
    # A file for each partition.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with multiprocessing.get_context("forkserver").Pool(processes) as workers:
        workers.map(abs, range(processes))  # They are there before the first job.
        serve_jobs(lambda job: consume_topic(workers, processes, job), Job)


if __name__ == "__main__":
    main()
