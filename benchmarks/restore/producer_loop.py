"""The contender producer loop: confluent-kafka, from files with one record after the other to their partitions.

Tuned as a careful user would: idempotent and ``acks=all`` as the restore is, batches as large as those that the source
had, time enough to fill them, no callback for what went well. As many processes as its argument says, each with its
share of the partitions; one process takes a piece of each file in turn, so that all brokers have work.
"""

import multiprocessing
import resource
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.backup.consumer_loop import RECORD_START
from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.contenders.topics import BATCH_BYTES, LINGER_MS
from benchmarks.restore.restore_job import RestoreJob, target_topic

_PIECE_RECORDS = 1000
_TIMEOUT_S = 120.0


def produce_topic(workers: Pool, processes: int, job: RestoreJob) -> Copied:
    partitions = [(topic, partition) for topic in job.topics for partition in range(len(job.end_offsets))]
    shares = [partitions[first::processes] for first in range(processes)]
    peaks = workers.map(partial(_produce_partitions, job), shares, chunksize=1)
    return Copied(records=job.records, peak_task_memory_bytes=max(peaks))


def _produce_partitions(job: RestoreJob, partitions: list[tuple[str, int]]) -> int:
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "compression.type": job.producer_compression,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
        }
    )
    waiting = {
        (topic, partition): _pieces(Path(job.folder) / f"{topic}-{partition}") for topic, partition in partitions
    }
    while waiting:
        for (topic, partition), pieces in list(waiting.items()):
            piece = next(pieces, None)
            if piece is None:
                del waiting[topic, partition]
            else:
                _produce(producer, target_topic(topic), partition, piece)
        producer.poll(0)
    left = producer.flush(_TIMEOUT_S)
    if left or failures:
        raise RuntimeError(f"{left} records were not acknowledged; {failures[:1]}")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _produce(producer: Producer, topic: str, partition: int, records: list[tuple[int, bytes | None, bytes]]) -> None:
    for timestamp, key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, partition, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.01)


def _pieces(path: Path) -> Iterator[list[tuple[int, bytes | None, bytes]]]:
    content = path.read_bytes()
    position = 0
    while position < len(content):
        piece: list[tuple[int, bytes | None, bytes]] = []
        while position < len(content) and len(piece) < _PIECE_RECORDS:
            _, timestamp, key_bytes, value_bytes = RECORD_START.unpack_from(content, position)
            key_start = position + RECORD_START.size
            value_start = key_start + key_bytes
            position = value_start + value_bytes
            piece.append((timestamp, content[key_start:value_start] or None, content[value_start:position]))
        yield piece


def main() -> None:
    processes = int(sys.argv[1])
    with multiprocessing.get_context("forkserver").Pool(processes) as workers:
        workers.map(abs, range(processes))  # They are there before the first job.
        serve_jobs(lambda job: produce_topic(workers, processes, job), RestoreJob)


if __name__ == "__main__":
    main()
