"""What a partition asks of the node around it, and what those ask to be told who wait for it."""

import asyncio
from typing import TYPE_CHECKING, Protocol

from quorate.kernel.errors import KafkaError
from quorate.replication.core.leader_events import ProposeIsr
from quorate.storage.reading import DamagedRecords, UncheckedSegment

if TYPE_CHECKING:
    from quorate.replication.partition import Partition


class Watcher(Protocol):
    """Somebody who wants to know when there is more to read, such as a fetch that waits for bytes."""

    def partition_changed(self, partition: "Partition") -> None: ...

    def stop_waiting(self) -> None:
        """The node stops: make do with what there is."""
        ...


class FollowerWatch(Protocol):
    """A follower that has asked for what comes next."""

    def has_records(self, partition: "Partition") -> None: ...

    def has_watermark(self, partition: "Partition") -> None: ...


class IntegrityPort(Protocol):
    """Checks and repairs what lies on the disk."""

    def sound_again(
        self, partition: "Partition", error: UncheckedSegment | DamagedRecords
    ) -> "asyncio.Future[None] | None":
        """Done when what could not be read may be; None where nothing can be done about it."""
        ...


class ReplicationPort(Protocol):
    """What a partition asks of the node around it."""

    def now_ms(self) -> int:
        """Of a clock that does not jump."""
        ...

    def propose_isr(self, partition: "Partition", proposal: ProposeIsr) -> None: ...

    def is_unsettled(self, partition: "Partition") -> None:
        """A follower may be behind: the leader wants to hear of the passing of time."""
        ...

    def synced_as_follower(self, partition: "Partition") -> None:
        """What was fetched is durable: more may be asked for."""
        ...

    def lost_its_disk(self, partition: "Partition", failure: KafkaError) -> None:
        """Nobody knows what the disk holds of this replica, while others have it."""
        ...
