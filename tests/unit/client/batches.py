"""Record batches for tests that look no deeper than headers."""

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.builder import build_batch
from quorate.records.record import Record

TIMESTAMP_MS = 1_700_000_000_000


def batch(base_offset: int, count: int, *, epoch: int = 0, value: bytes = b"value") -> bytes:
    records = [Record(Offset(base_offset + number), TIMESTAMP_MS, None, value) for number in range(count)]
    return build_batch(records, base_offset=Offset(base_offset), leader_epoch=LeaderEpoch(epoch))


def log(*spans: tuple[int, int], epoch: int = 0) -> bytes:
    """Batches from (first offset, last offset) each."""
    return b"".join(batch(first, last - first + 1, epoch=epoch) for first, last in spans)
