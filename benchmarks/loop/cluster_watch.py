"""What a case did to a cluster: answers to other clients, elections, fencings, memory, and what held the loops."""

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.cluster.systems import QuorateCluster
from benchmarks.loop.cases import HOLD, Case, Outcome
from benchmarks.loop.side_client import SideClient

_ELECTION = "controller active "
_FENCING = "broker fenced "
_KIB_A_MIB = 1024


class ClusterWatch:
    def __init__(self, system: QuorateCluster, side_client: SideClient, settling_s: float) -> None:
        self._system = system
        self._side_client = side_client
        self._settling_s = settling_s

    def watch(self, case: Case, work: Callable[[], str]) -> Outcome:
        """Run the case and wait for what comes of it. ``work`` returns what became of its requests.

        A node that is stopped is fenced: that is no fault.
        """
        self._side_client.take()
        before, memory = self._counts(), {pid: _reset_peak(pid) for pid in self._pids()}
        started = time.perf_counter()
        note = work()
        seconds = time.perf_counter() - started
        time.sleep(self._settling_s)
        answers, after = self._side_client.take(), self._counts()
        growths = [_memory_mib(pid, "VmHWM:") - memory[pid] for pid in self._pids() if pid in memory]
        return Outcome(
            case=case,
            worst_answer_ms=answers.worst_ms,
            median_answer_ms=answers.median_ms,
            seconds=seconds,
            elections=after[_ELECTION] - before[_ELECTION],
            fencings=after[_FENCING] - before[_FENCING] - (case is Case.RESTART_NODE),
            growth_mib=max(growths, default=0.0),
            holds=after[HOLD] - before[HOLD],
            note=note,
        )

    def held_by(self) -> list[str]:
        """The lines of all nodes that name what held their loops."""
        return [line for log in self._logs() for line in log.splitlines() if HOLD in line]

    def _pids(self) -> list[int]:
        return [node.process.pid for node in self._system.nodes.values() if node.process.running]

    def _counts(self) -> dict[str, int]:
        logs = self._logs()
        return {what: sum(log.count(what) for log in logs) for what in (_ELECTION, _FENCING, HOLD)}

    def _logs(self) -> list[str]:
        return [node.log_path.read_text(errors="replace") for node in self._system.nodes.values()]


def _reset_peak(pid: int) -> float:
    """Have the kernel forget the most memory that the process had; returns what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _memory_mib(pid, "VmRSS:")


def _memory_mib(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / _KIB_A_MIB
