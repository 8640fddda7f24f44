"""The processes below one, as a test that kills Spark's workers or waits for their end needs them."""

from contextlib import suppress
from pathlib import Path

_DAEMONS = ("quorate.backup.spark.session.worker_daemon", "pyspark.daemon")


def descendants(pid: int) -> list[int]:
    """All processes below this one, whichever of its threads has started them."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command_of(pid: int) -> str:
    """The command line of a process, empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def python_workers(pid: int) -> list[int]:
    """The processes that run tasks below a driver: those that Spark's Python daemon has forked."""
    # Java has the daemon's name among its settings, too; and who has children of its own is the daemon.
    return [child for child in descendants(pid) if _is_of_the_daemon(command_of(child)) and not descendants(child)]


def _is_of_the_daemon(command: str) -> bool:
    program, _, arguments = command.partition(" ")
    # Our own where the command starts Spark itself, Spark's on a cluster.
    return Path(program).name.startswith("python") and any(name in arguments for name in _DAEMONS)
