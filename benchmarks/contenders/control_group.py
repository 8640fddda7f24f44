"""CPU time of a contender and of all that it ever started, processes that have ended included: a control group's.

``/proc`` forgets what a process took whose parent does not wait for it. Spark's Python workers have such a parent: it
ignores the signal that tells of their end.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
#: A shell joins the group and becomes the command, so that nothing of it is outside.
_JOIN: Final = 'echo $$ > "$1" && shift && exec "$@"'
_PREFIX: Final = "quorate-benchmark-"
_NUMBERS = count()
_REMOVAL_TIMEOUT_S = 10.0
_REMOVAL_INTERVAL_S = 0.05


class ControlGroup:
    """Version 2, where each group counts CPU time, whether or not its controller is switched on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def joining(self, command: Sequence[str]) -> list[str]:
        """The command as a process of the group."""
        return ["/bin/sh", "-c", _JOIN, "sh", str(self._folder / "cgroup.procs"), *command]

    def cpu_seconds(self) -> float:
        """User and system time so far of whatever is or was in the group."""
        fields = dict(line.split() for line in (self._folder / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def remove(self) -> None:
        """Once its processes are gone. What is left after a while is ended: it was started for a contender."""
        deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
        while not self._is_removed():
            if time.monotonic() > deadline:
                with suppress(OSError):
                    (self._folder / "cgroup.kill").write_text("1")
            if time.monotonic() > deadline + _REMOVAL_TIMEOUT_S:
                return
            time.sleep(_REMOVAL_INTERVAL_S)

    def _is_removed(self) -> bool:
        with suppress(OSError):
            self._folder.rmdir()
        return not self._folder.exists()


def make_control_group(mounts: Path = _MOUNTS, own_groups: Path = _OWN_GROUPS) -> ControlGroup | None:
    """Inside the group of this process; None where there are none or this user may make none."""
    parent = _own_folder(mounts, own_groups)
    if parent is None:
        return None
    _remove_left_behind(parent)
    folder = parent / f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    try:
        folder.mkdir()
    except OSError:
        return None
    group = ControlGroup(folder)
    # Making a group and joining one are not the same permission.
    if subprocess.run(group.joining(["true"]), stderr=subprocess.DEVNULL, check=False).returncode:
        group.remove()
        return None
    return group


def _remove_left_behind(parent: Path) -> None:
    """Groups of runs that were killed."""
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            with suppress(OSError):  # Somebody is still in it.
                folder.rmdir()


def _own_folder(mounts: Path, own_groups: Path) -> Path | None:
    own = next((line[3:] for line in own_groups.read_text().splitlines() if line.startswith("0::")), None)
    if own is None:
        return None
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            root, mount_point = before.split()[3:5]
            with suppress(ValueError):
                return Path(mount_point) / Path(own).relative_to(root)
    return None
