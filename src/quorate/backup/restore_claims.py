"""Who writes a target partition now: claims in the storage, of which the newest counts. Does I/O; time is handed in.

The leader of a partition keeps two attempts apart by their sequences, for as long as it remembers the restore's
producer. Apache Kafka measures that memory by the times of the records, and so may forget it within minutes where they
are old. A claim keeps attempts apart then: whoever begins takes the next number, waits until everyone before must have
noticed, and from then on looks at short intervals whether somebody came after.
"""

from collections.abc import Callable
from typing import Final

from quorate.backup.errors import BackupError, ObjectExists, ObjectNotFound
from quorate.backup.storage import ObjectStorage
from quorate.kernel.ids import PartitionIndex, TopicName

CHECK_INTERVAL_S: Final = 1.0
#: Longer than the interval and the longest time for which a writer sends without looking.
TAKE_OVER_S: Final = 6.0


class ClaimLost(BackupError):
    """A newer attempt writes this partition now."""


class PartitionClaim:
    def __init__(
        self,
        storage: ObjectStorage,
        restore_id: str,
        topic: TopicName,
        partition: PartitionIndex,
        *,
        now: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._folder = f"{restore_id}/claims/{topic}/{partition}/"
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
        raise ClaimLost(f"another run of this restore has taken over {self._what}: let that one finish")

    def _take(self) -> int:
        names = [each.name for each in self._storage.objects(self._folder)]
        number = 1 + max((int(name.rpartition("/")[2]) for name in names), default=0)
        while True:
            try:
                self._storage.put_if_absent(self._name(number), b"{}")
            except ObjectExists:
                number += 1
            else:
                return number

    def _name(self, number: int) -> str:
        return f"{self._folder}{number}"
