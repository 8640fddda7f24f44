"""Fetched regions of all kinds, made from a random generator: as brokers send them, with rare batches, and damaged."""

import random
import struct

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.unit.records.test_legacy import message

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_START = 21
_LAST_OFFSET = 2**63 - 1
_RARE_ATTRIBUTES = (0x08, 0x10, 0x20, 0x30, 0x48, -0x8000)
_HOSTILE_NUMBERS = (0, 1, 48, 49, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)


def raw_batch(
    base_offset: int,
    record_count: int,
    *,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    leader_epoch: int = 3,
    base_timestamp: int = 1_000,
    max_timestamp: int = 2_000,
    payload: bytes = b"",
) -> bytes:
    """A header like that, a CRC that fits, and anything for records."""
    delta = record_count - 1 if last_offset_delta is None else last_offset_delta
    fields = (attributes, delta, base_timestamp, max_timestamp, -1, -1, -1, record_count)
    batch = bytearray(_HEADER.pack(base_offset, 49 + len(payload), leader_epoch, 2, 0, *fields) + payload)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[_CRC_START:])))
    return bytes(batch)


def random_region(chance: random.Random, *, base_offset: int = 0, batch_count: int = 12, rare: float = 0.15) -> bytes:
    """Batches in order; ``rare`` is the share of those that are not quite like others."""
    region, offset, epoch = b"", base_offset, 3
    for _ in range(chance.randrange(batch_count + 1)):
        kind = chance.choice(_RARE_KINDS) if chance.random() < rare else _usual
        if chance.random() < rare:
            offset += chance.randrange(4)
        if chance.random() < rare / 4:
            epoch += 1
        if offset > _LAST_OFFSET:
            break
        batch, count = kind(chance, offset, epoch)
        region += batch
        offset += count
    return region


def mutated(chance: random.Random, region: bytes) -> bytes:
    """A few bytes or numbers are others, or a piece is cut out, or the end is missing."""
    data = bytearray(region)
    for _ in range(chance.randrange(1, 4)):
        if not data:
            break
        position = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data[position] ^= 1 << chance.randrange(8)
            case 1:
                del data[position:]
            case 2:
                del data[position : position + chance.randrange(80)]
            case _:
                number = chance.choice(_HOSTILE_NUMBERS).to_bytes(8, "big")[chance.choice((0, 4, 6, 7)) :]
                data[position : position + len(number)] = number
    return bytes(data)


def _usual(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    count = chance.choice((1, 1, 2, 5))
    times = sorted(chance.randrange(1_000, 5_000) for _ in range(2))
    batch = raw_batch(
        offset,
        count,
        attributes=chance.choice((0, 0, 0, 4)),
        leader_epoch=epoch,
        base_timestamp=times[0],
        max_timestamp=times[1],
        payload=chance.randbytes(chance.randrange(120)),
    )
    return batch, count


def _other_attributes(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    attributes = chance.choice(_RARE_ATTRIBUTES) | chance.choice((0, 3))
    return raw_batch(offset, 2, attributes=attributes, leader_epoch=epoch), 2


def _sparse(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    delta = chance.randrange(8)
    return raw_batch(offset, chance.randrange(delta + 2), last_offset_delta=delta, leader_epoch=epoch), delta + 1


def _without_times(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    times = chance.choice(((-1, -1), (-5, -1), (-1, 7), (-(2**63), 2**63 - 1)))
    return raw_batch(offset, 1, leader_epoch=epoch, base_timestamp=times[0], max_timestamp=times[1]), 1


def _without_epoch(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    return raw_batch(offset, 1, leader_epoch=-1), 1


def _with_delete_horizon(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    records = [Record(Offset(offset + index), 500 - index, b"k", None) for index in range(2)]
    batch = build_batch(
        records, base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch), delete_horizon_ms=chance.randrange(9_000)
    )
    return batch, 2


def _large(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    return raw_batch(offset, 1, leader_epoch=epoch, payload=bytes(chance.randrange(600, 3_000))), 1


def _old_format(chance: random.Random, offset: int, epoch: int) -> tuple[bytes, int]:
    return message(offset, b"value", magic=chance.choice((0, 1))), 1


_RARE_KINDS = (
    _other_attributes,
    _other_attributes,
    _sparse,
    _without_times,
    _without_epoch,
    _with_delete_horizon,
    _large,
    _old_format,
)
