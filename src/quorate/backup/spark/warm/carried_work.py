"""The work of a command, done in a worker that an earlier command's Spark has started.

A worker inherits environment, folder and umask from the command that started Spark; here each task gets those of its
own command, and gives them back: credentials, relative names and the modes of files are what its user means.
"""

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from quorate.backup.spark.session.tasks import Outcome, Report, Work, ignore


class CarriedWork:
    def __init__(self, work: bytes, changes: Mapping[str, str | None], folder: str | None, umask: int) -> None:
        self._work = work
        self._changes = dict(changes)
        self._folder = folder
        self._umask = umask

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome:
        with self._surroundings():
            work: Work = pickle.loads(self._work)
            return work(task, report)

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        before = {name: os.environ.get(name) for name in self._changes}
        folder = os.getcwd()
        umask = os.umask(self._umask)
        try:
            _change(self._changes)
            if self._folder is not None:
                with suppress(OSError):  # It may be gone; who needs it will say so.
                    os.chdir(self._folder)
            yield
        finally:
            _change(before)
            os.chdir(folder)
            os.umask(umask)


def environment_changes(command: Mapping[str, str], keeper: Mapping[str, str]) -> dict[str, str | None]:
    """What the environment of a worker has to change; None: the name is to go."""
    changed: dict[str, str | None] = {name: value for name, value in command.items() if keeper.get(name) != value}
    return changed | {name: None for name in keeper if name not in command}


def _change(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
