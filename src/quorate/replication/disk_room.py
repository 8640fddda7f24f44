"""Whether this node's disk takes records, told to those who write them, to the cluster and to its operators.

The disk is full when less than ``log.disk.reserve.bytes`` is free, or when a write has failed for want of room: the
volume may be another's as well, and filled between two looks. Then partitions take nothing more, as leader and as
follower, and replicas with room take over; what is left is for the metadata log and for checkpoints. It ends when there
is clearly more room again than the reserve, and a file of some size could be made.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from quorate.kernel.conditions import Condition, Conditions
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import Disk, VolumeSpace, is_full
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.storage.reserve import Reserve

logger = logging.getLogger(__name__)

CONDITION = "disk-full"
_LOOK_INTERVAL_S = 1.0
_SHORTEST_LOOK_INTERVAL_S = 0.05
#: What a fast disk may be filled with in a second: the less room there is, the sooner comes the next look.
_FILLED_PER_SECOND = 1 << 30
#: The part of the reserve that is held back as a file, and the most that is.
_HELD_PART = 4
_MOST_HELD_BYTES = 64 << 20
#: Room that must be there beyond the reserve, as a part of it, before records are taken again.
_SPARE_PART = 4


def has_room(free_bytes: int, reserve_bytes: int, *, was_full: bool) -> bool:
    """Once it was full there has to be more, so that a few freed bytes do not send leaders to and fro."""
    return free_bytes >= reserve_bytes + (reserve_bytes // _SPARE_PART if was_full else 0)


class DiskRoom:
    """Belongs to the loop."""

    def __init__(self) -> None:
        #: Why no records are taken; None while they are.
        self.refusal: str | None = None
        #: Told of every write that failed for want of room.
        self.on_full: Callable[[], None] | None = None

    def require(self) -> None:
        """Raises KAFKA_STORAGE_ERROR while no records are taken."""
        if self.refusal is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.refusal)

    def write_failed(self, error: BaseException | None) -> None:
        if isinstance(error, OSError) and is_full(error) and self.on_full is not None:
            self.on_full()


class DiskWatch:
    """Looks at the room of the volume from time to time, and after a write that found none."""

    def __init__(
        self,
        node_id: NodeId,
        data_dir: str,
        room: DiskRoom,
        *,
        disk: Disk,
        reserve: Reserve,
        reserve_bytes: Callable[[], int],
        conditions: Conditions,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        tell_cluster: Callable[[bool], None],
    ) -> None:
        self._node_id = node_id
        self._data_dir = data_dir
        self._room = room
        self._disk = disk
        self._reserve = reserve
        self._reserve_bytes = reserve_bytes
        self._conditions = conditions
        self._loop = loop
        self._executor = executor
        self._tell_cluster = tell_cluster
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskScope(loop, logged_failures(logger, "proof that the disk has room"))
        self._making: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        self._room.on_full = self._write_failed
        wanted = self._held_bytes_wanted()
        if self._reserve.held_bytes != wanted and self._disk.space(self._data_dir).free_bytes > self._reserve_bytes():
            self._make_reserve()
        self._look()

    async def stop(self) -> None:
        self._stopped = True
        self._room.on_full = None
        if self._timer is not None:
            self._timer.cancel()
        if self._making is not None:
            await asyncio.wait([self._making])

    def _look(self) -> None:
        space = self._disk.space(self._data_dir)
        reserve_bytes = self._reserve_bytes()
        was_full = self._room.refusal is not None
        free_bytes = space.free_bytes + self._reserve.held_bytes
        needs_reserve = self._held_bytes_wanted() > 0 and not self._reserve.held_bytes
        if not has_room(free_bytes, reserve_bytes, was_full=was_full or needs_reserve):
            self._is_full(space)
        elif was_full or needs_reserve:
            self._try_to_write()
        spare_s = (free_bytes - reserve_bytes) / _FILLED_PER_SECOND
        self._look_in(_LOOK_INTERVAL_S if was_full else min(_LOOK_INTERVAL_S, spare_s))

    def _look_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped:
            self._timer = self._loop.call_later(max(_SHORTEST_LOOK_INTERVAL_S, delay_s), self._look)

    def _write_failed(self) -> None:
        if self._room.refusal is None:
            self._is_full(self._disk.space(self._data_dir))
            self._look_in(_LOOK_INTERVAL_S)

    def _is_full(self, space: VolumeSpace) -> None:
        sentence = (
            f"the disk of {self._data_dir} is full: {space.free_bytes} of its {space.total_bytes} bytes are free and "
            f"log.disk.reserve.bytes is {self._reserve_bytes()}, so the node takes no records; make room there, and it "
            f"goes on by itself"
        )
        self._conditions.set(Condition(kind=CONDITION, subject=self._data_dir, sentence=sentence))
        if self._room.refusal is None:
            self._room.refusal = f"Node {self._node_id}: {sentence}."
            logger.error(
                "disk full node=%s path=%s free_bytes=%s reserve_bytes=%s",
                self._node_id,
                self._data_dir,
                space.free_bytes,
                self._reserve_bytes(),
            )
            self._tell_cluster(False)

    def _try_to_write(self) -> None:
        """Free bytes alone do not tell: a quota may be used up, or the volume's table of files."""
        if self._making is None:
            self._making = self._tasks.spawn(self._prove_room())

    async def _prove_room(self) -> None:
        try:
            await self._loop.run_in_executor(self._executor, self._make_file_anew)
        except OSError as error:
            logger.debug("disk takes nothing node=%s path=%s error=%s", self._node_id, self._data_dir, error)
            self._is_full(self._disk.space(self._data_dir))
        else:
            self._takes_records()
        finally:
            self._making = None

    def _takes_records(self) -> None:
        if self._room.refusal is not None:
            self._room.refusal = None
            self._conditions.clear(CONDITION, self._data_dir)
            logger.info("disk has room again node=%s path=%s", self._node_id, self._data_dir)
            self._tell_cluster(True)

    def _make_file_anew(self) -> None:
        self._reserve.give_up()
        self._reserve.make(max(1, self._held_bytes_wanted()))

    def _make_reserve(self) -> None:
        try:
            self._reserve.make(self._held_bytes_wanted())
        except OSError as error:
            logger.warning("no room for the reserve node=%s path=%s error=%s", self._node_id, self._data_dir, error)

    def _held_bytes_wanted(self) -> int:
        return min(self._reserve_bytes() // _HELD_PART, _MOST_HELD_BYTES)
