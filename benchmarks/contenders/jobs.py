"""What a contender is asked to do and what it answers, and the loop in which its process does so.

A contender starts all that it needs (a Spark session, worker processes), says that it is ready, and then does one job
for each line on its standard input. So a run can be timed without the start of the session.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    bootstrap: str
    topics: tuple[str, ...]
    # Where a contender writes: there and empty, unless the job continues an earlier one. Where one that writes to a
    # cluster reads.
    folder: str
    # Where each partition of a topic ends, the same in all topics; empty where the contender finds out by itself.
    end_offsets: tuple[int, ...] = ()
    # In all topics together.
    records: int = 0
    backup_compression: str = "none"
    backup_mode: str = "snapshot"
    # The process that sends the logs as they are, for the limit.
    log_server_port: int = 0


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    records: int
    # Of the process that did the most; None where tasks have no process of their own.
    peak_task_memory_bytes: int | None = None


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a contender knows of its work when it is done."""

    records: int
    peak_task_memory_bytes: int | None = None


READY = b"ready\n"

AnyJob = TypeVar("AnyJob", bound=Job)


def serve_jobs(work: Callable[[AnyJob], Copied], job_type: type[AnyJob]) -> None:
    """Answer jobs until the input ends. Whatever else prints to standard output goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    os.write(answers, READY)
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=job_type)
        started = time.perf_counter()
        copied = work(job)
        seconds = time.perf_counter() - started
        result = JobResult(
            seconds=seconds, records=copied.records, peak_task_memory_bytes=copied.peak_task_memory_bytes
        )
        os.write(answers, msgspec.json.encode(result) + b"\n")
