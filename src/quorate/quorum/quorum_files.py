"""The quorum's small files: the vote, the snapshot, and the mark that a log is being recovered.

The vote and the mark are in no other place of the cluster, and lie in their files twice. A snapshot can be had from any
other member, and lies there once, with its CRC-32C in a last line. All methods block.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from quorate.kernel.ids import Offset, Term
from quorate.kernel.ports import Disk
from quorate.quorum import doubled_file
from quorate.quorum.core.entries import HardState, LogPosition, Snapshot

STATE = "quorum-state"
SNAPSHOT = "quorum-snapshot"
RECOVERY = "quorum-recovery"

T = TypeVar("T")
_decode_state = msgspec.json.Decoder(HardState).decode
_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


class RecoveryMark(msgspec.Struct, frozen=True):
    """The log has lost entries to damage; it went as far as this."""

    last_term: Term
    end_offset: Offset

    @property
    def lost_log(self) -> LogPosition:
        return LogPosition(self.last_term, self.end_offset)


_decode_mark = msgspec.json.Decoder(RecoveryMark).decode


class StoredCopy(msgspec.Struct, frozen=True):
    """What was found of a file. One that is damaged may still say all of what it said."""

    is_there: bool = False
    is_damaged: bool = False


class QuorumFiles:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self.state_path = f"{data_dir}/{STATE}"
        self.snapshot_path = f"{data_dir}/{SNAPSHOT}"
        self.recovery_path = f"{data_dir}/{RECOVERY}"

    def read_state(self) -> tuple[HardState | None, StoredCopy]:
        return self._read_doubled(self.state_path, _decode_state)

    def read_mark(self) -> tuple[RecoveryMark | None, StoredCopy]:
        return self._read_doubled(self.recovery_path, _decode_mark)

    def read_snapshot(self) -> tuple[Snapshot | None, StoredCopy]:
        stored = doubled_file.read_all(self._disk, self.snapshot_path)
        if stored is None:
            return None, StoredCopy()
        content = doubled_file.with_crc_line_checked(stored)
        snapshot = None if content is None else _decode(_decode_snapshot, content)
        return snapshot, StoredCopy(is_there=True, is_damaged=snapshot is None)

    def write_state(self, hard_state: HardState) -> None:
        self._disk.replace(self.state_path, doubled_file.encode(msgspec.json.encode(hard_state)))

    def write_mark(self, lost_log: LogPosition) -> None:
        mark = RecoveryMark(lost_log.last_term, lost_log.end_offset)
        self._disk.replace(self.recovery_path, doubled_file.encode(msgspec.json.encode(mark)))

    def write_snapshot(self, snapshot: Snapshot) -> None:
        self._disk.replace(self.snapshot_path, doubled_file.with_crc_line(msgspec.msgpack.encode(snapshot)))

    def _read_doubled(self, path: str, decode: Callable[[bytes], T]) -> tuple[T | None, StoredCopy]:
        doubled = doubled_file.read(self._disk, path)
        if doubled is None:
            return None, StoredCopy()
        found = None if doubled.content is None else _decode(decode, doubled.content)
        return found, StoredCopy(is_there=True, is_damaged=doubled.is_damaged or found is None)


def _decode(decode: Callable[[bytes], T], content: bytes) -> T | None:
    try:
        return decode(content)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
