"""Record batches as bytes: sound ones of every codec, bombs of bounded size, and batches with one thing wrong.

A header that is changed gets its checksum anew half of the time: only then is what it says looked at.
"""

import struct
from random import Random
from typing import Final

from crc32c import crc32c

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.fuzz.world import World

_TIMESTAMP: Final = 1_700_000_000_000
_BOMB_BYTES: Final = 2_000_000
_HEADER_BYTES: Final = 61
_CRC_AT: Final = 17
_UNDER_CRC_FROM: Final = 21
#: Offset and format of the fields of a batch's header.
_FIELDS: Final = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
_FIELD_NAMES: Final = tuple(_FIELDS)


class RecordBatches:
    """Made once: to build and to compress a batch takes longer than all else."""

    def __init__(self, world: World) -> None:
        self._sound = [_sound(codec, count, key) for codec in Compression for count in (1, 3) for key in (None, b"key")]
        self._of_producers = [
            _of_producer(ProducerId(producer_id), epoch, sequence, is_transactional=is_transactional)
            for producer_id, epoch in world.producers[:8]
            for sequence in (0, 1, 2**31 - 1)
            for is_transactional in (False, True)
        ]
        bomb = [Record(Offset(0), _TIMESTAMP, b"key", bytes(_BOMB_BYTES))]
        many = [Record(Offset(each), _TIMESTAMP, b"k", None) for each in range(20_000)]
        packed = (Compression.GZIP, Compression.LZ4, Compression.ZSTD)
        self._bombs = [build_batch(records, compression=codec) for records in (bomb, many) for codec in packed]
        self._old = [_old_message(magic, key) for magic in (0, 1) for key in (None, b"key")]

    def records(self, random: Random, hostility: float) -> bytes:
        """What a Produce request carries for one partition."""
        kind = random.random()
        if kind < 0.01:
            return random.choice(self._bombs)
        if kind < 0.04:
            return random.choice(self._old)
        batch = random.choice(self._of_producers if kind < 0.4 else self._sound)
        if random.random() >= max(0.2, hostility):
            return batch
        return self._damaged(random, batch)

    def _damaged(self, random: Random, batch: bytes) -> bytes:
        kind = random.randrange(8)
        if kind == 0:
            return batch + random.choice(self._sound)
        if kind == 1:
            return batch[: random.randrange(len(batch))]
        if kind == 2:
            return b""
        changed = bytearray(batch)
        if kind == 3:  # What the codec, or the records themselves, are to make of it.
            changed[random.randrange(_HEADER_BYTES, len(changed))] ^= 1 << random.randrange(8)
        elif kind == 4:
            at = random.randrange(_HEADER_BYTES, len(changed))
            changed[at:] = random.randbytes(len(changed) - at)
        else:
            _change_field(random, changed)
        if random.random() < 0.7:
            struct.pack_into(">I", changed, _CRC_AT, crc32c(bytes(changed[_UNDER_CRC_FROM:])))
        return bytes(changed)


def _change_field(random: Random, batch: bytearray) -> None:
    at, letter = _FIELDS[random.choice(_FIELD_NAMES)]
    bits = struct.calcsize(letter) * 8
    largest = (1 << bits - 1) - 1
    value = random.choice((0, 1, 2, -1, -2, 7, largest, -largest - 1, random.randint(-largest, largest)))
    struct.pack_into(letter, batch, at, value)


def _sound(codec: Compression, count: int, key: bytes | None) -> bytes:
    records = [Record(Offset(each), _TIMESTAMP, key, b"value" * 20, (("h", b"v"),)) for each in range(count)]
    return build_batch(records, compression=codec)


def _of_producer(producer_id: ProducerId, epoch: int, sequence: int, *, is_transactional: bool) -> bytes:
    return build_batch(
        [Record(Offset(0), _TIMESTAMP, b"key", b"value")],
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def _old_message(magic: int, key: bytes | None) -> bytes:
    """A message of the formats 0 and 1, with a checksum that is wrong: nobody writes them any more."""
    timestamp = struct.pack(">q", _TIMESTAMP) if magic else b""
    raw_key = struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    body = struct.pack(">Ibb", 0, magic, 0) + timestamp + raw_key + struct.pack(">i", 5) + b"value"
    return struct.pack(">qi", 0, len(body)) + body
