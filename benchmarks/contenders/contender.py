"""A contender's process, and one measured run of it: wall time, CPU time of all its processes, memory, stored bytes."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from benchmarks import process_usage
from benchmarks.contenders import process_tree
from benchmarks.contenders.control_group import ControlGroup, make_control_group
from benchmarks.contenders.jobs import READY, Job, JobResult
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.process_tree import MemoryWatch


class ContenderFailed(Exception):
    """A contender ended or did not do all of its work; the message has the end of its log."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One job of one contender."""

    case: str
    contender: ContenderName
    repeat: int
    seconds: float
    records: int
    log_bytes: int  # What the brokers keep of these records, whatever the contender makes of them.
    stored_bytes: int  # In the job's folder when it is done: what was written, or what is read.
    cpu_seconds: float  # Of the contender's processes, the Spark driver's JVM included.
    cluster_cpu_seconds: float  # Of the brokers, or of what stands in for them.
    other_cpu_seconds: float  # Of everything else on the machine: the noise.
    peak_task_memory_bytes: int | None
    peak_tree_memory_bytes: int
    # False where the CPU seconds of processes are missing that have ended and that nobody waited for.
    counts_ended_processes: bool = True

    @property
    def megabytes_per_second(self) -> float:
        return self.log_bytes / 1e6 / self.seconds

    @property
    def megabytes_per_cpu_second(self) -> float:
        return self.log_bytes / 1e6 / self.cpu_seconds


class Contender:
    """Starts with its making; is ready for jobs when the block is entered; ends with it."""

    def __init__(
        self, name: ContenderName, module: str, arguments: Sequence[str], folder: Path, cluster_pids: Sequence[int]
    ) -> None:
        self.name = name
        self._cluster_pids = cluster_pids
        self._log_path = folder / f"{module.rpartition('.')[2]}.log"
        self._group = make_control_group()
        command = [sys.executable, "-m", module, *arguments]
        if self._group is not None:
            command = self._group.joining(command)
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def __enter__(self) -> Self:
        answer = self._answer()
        assert answer == READY, answer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._group is not None:
            self._group.remove()

    def measure(self, case: str, name: ContenderName, repeat: int, job: Job, log_bytes: int) -> Run:
        meter = _Meter(self._process.pid, self._group, self._cluster_pids)
        with MemoryWatch(self._process.pid) as memory:
            result = self.run(job)
        cpu_s, cluster_s, other_s = meter.read()
        return Run(
            case=case,
            contender=name,
            repeat=repeat,
            seconds=result.seconds,
            records=result.records,
            log_bytes=log_bytes,
            stored_bytes=_size_of(Path(job.folder)),
            cpu_seconds=cpu_s,
            cluster_cpu_seconds=cluster_s,
            other_cpu_seconds=other_s,
            peak_task_memory_bytes=result.peak_task_memory_bytes,
            peak_tree_memory_bytes=memory.peak_bytes,
            counts_ended_processes=self._group is not None,
        )

    def run(self, job: Job) -> JobResult:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # The missing answer says why.
        return msgspec.json.decode(self._answer(), type=JobResult)

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContenderFailed(f"{self.name} ended:\n{self._log_path.read_text(errors='replace')[-3000:]}")
        return line


class _Meter:
    """CPU time from its making on: of the contender, of the cluster, and of everything else but this process."""

    def __init__(self, pid: int, group: ControlGroup | None, cluster_pids: Sequence[int]) -> None:
        self._pid = pid
        self._group = group
        self._cluster_pids = cluster_pids
        self._before = self._now()

    def read(self) -> tuple[float, float, float]:
        contender_s, cluster_s, own_s, machine_s = (
            after - before for after, before in zip(self._now(), self._before, strict=True)
        )
        return contender_s, cluster_s, max(0.0, machine_s - contender_s - cluster_s - own_s)

    def _now(self) -> tuple[float, float, float, float]:
        return (
            process_tree.cpu_seconds(self._pid) if self._group is None else self._group.cpu_seconds(),
            sum(map(process_usage.cpu_seconds, self._cluster_pids)),
            time.process_time(),
            process_usage.machine_busy_seconds(),
        )


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
