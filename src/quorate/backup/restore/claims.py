"""Who writes a target partition now: claims in the storage, of which the newest counts. Does I/O; time is handed in.

The leader of a partition keeps two attempts apart by their sequences, for as long as it remembers the restore's
producer. Apache Kafka measures that memory by the times of the records, and so may forget it within minutes where they
are old. A claim keeps attempts apart then: whoever begins takes the next number, waits until everyone before must have
noticed, and from then on looks at short intervals whether somebody came after.

The runs of a restore have numbers, too, and an older run never takes back what a newer one has claimed. So of several
commands that run at once the newest one goes on, whatever Spark tries again of the others.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quorate.backup.errors import BackupError, ObjectExists, ObjectNotFound
from quorate.backup.objects.names import topic_label
from quorate.backup.objects.storage import ObjectStorage
from quorate.kernel.ids import PartitionIndex, TopicName

CHECK_INTERVAL_S: Final = 1.0
#: Longer than the interval and the longest time for which a writer sends without looking.
TAKE_OVER_S: Final = 6.0

_NUMBER = re.compile(r"[1-9]\d{0,8}")
_RUN = re.compile(rb"[1-9]\d{0,8}")


class ClaimLost(BackupError):
    """A newer attempt writes this partition now."""


def take_run_number(storage: ObjectStorage, restore_id: str) -> int:
    """A number above those of all runs of the restore that began before."""
    folder = f"{restore_id}/runs/"
    while True:
        number = _newest(storage, folder) + 1
        with suppress(ObjectExists):
            storage.put_if_absent(f"{folder}{number}", b"{}")
            return number


class PartitionClaim:
    def __init__(
        self,
        storage: ObjectStorage,
        restore_id: str,
        topic: TopicName,
        partition: PartitionIndex,
        *,
        run_number: int,
        now: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._run_number = run_number
        self._folder = f"{restore_id}/claims/{topic_label(topic)}/{partition}/"
        self._what = f"{topic}-{partition}"
        self._now = now
        self._checked_at = now()
        self._number = self._take()

    @property
    def is_first(self) -> bool:
        """Whether nobody can have written before."""
        return self._number == 1

    def check(self) -> None:
        """Raise ``ClaimLost`` where a newer claim is known. Asks the storage once an interval."""
        if self._now() - self._checked_at >= CHECK_INTERVAL_S:
            self.check_now()

    def check_now(self) -> None:
        asked_at = self._now()
        try:
            self._storage.info(self._name(self._number + 1))
        except ObjectNotFound:
            self._checked_at = asked_at
            return
        raise self._lost()

    def _take(self) -> int:
        while True:
            newest = _newest(self._storage, self._folder)
            # No claim is of an older run than the one before it, so the newest tells of the newest run.
            if newest and self._run_of(newest) > self._run_number:
                raise self._lost()
            with suppress(ObjectExists):
                self._storage.put_if_absent(self._name(newest + 1), str(self._run_number).encode())
                return newest + 1

    def _run_of(self, number: int) -> int:
        name = self._name(number)
        content = self._storage.read(name)
        if not _RUN.fullmatch(content):
            raise BackupError(f"{self._storage.url_of(name)} is damaged: it holds no number of a run; delete it")
        return int(content)

    def _lost(self) -> ClaimLost:
        return ClaimLost(f"another run of this restore has taken over {self._what}: let that one finish")

    def _name(self, number: int) -> str:
        return f"{self._folder}{number}"


def _newest(storage: ObjectStorage, folder: str) -> int:
    """Zero where there is none. What a process that was killed left half written has another name."""
    names = (each.name.removeprefix(folder) for each in storage.objects(folder))
    return max((int(name) for name in names if _NUMBER.fullmatch(name)), default=0)
