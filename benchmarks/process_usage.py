"""What a process took from the machine, read from ``/proc``: CPU seconds and memory."""

import os
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_KIB = 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far."""
    return _cpu_seconds(Path(f"/proc/{pid}/stat"))


def compiler_cpu_seconds(pid: int) -> float:
    """Time spent so far by a JVM's compiler threads; 0 for a process that has none."""
    total_s = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            if "CompilerThre" in (thread / "comm").read_text():
                total_s += _cpu_seconds(thread / "stat")
        except FileNotFoundError:
            continue  # The thread ended meanwhile.
    return total_s


def peak_memory_bytes(pid: int) -> int:
    """The most resident memory the process ever had."""
    return _kib_field(Path(f"/proc/{pid}/status"), "VmHWM:") * _KIB


def proportional_memory_bytes(pid: int) -> int:
    """Resident memory now, with pages that are shared with other processes divided among them."""
    return _kib_field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * _KIB


def machine_busy_seconds() -> float:
    """CPU time that anything on this machine has used so far, stolen time included."""
    user, nice, system, _idle, _iowait, *interrupts_and_steal = map(int, _first_line(Path("/proc/stat")).split()[1:9])
    return (user + nice + system + sum(interrupts_and_steal)) / _TICKS_PER_SECOND


def _cpu_seconds(stat: Path) -> float:
    # The second field is a name in brackets and may hold spaces: count from behind it.
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _kib_field(path: Path, name: str) -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def _first_line(path: Path) -> str:
    with path.open() as file:
        return file.readline()
