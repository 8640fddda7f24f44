"""The payload of a quorum entry: the records of one batch of decisions, which become true together."""

from collections.abc import Sequence

import msgspec

from quorate.metadata.core.records import AnyRecord

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[AnyRecord]] = msgspec.msgpack.Decoder(list[AnyRecord])


def encode_records(records: Sequence[AnyRecord]) -> bytes:
    return _encoder.encode(records)


def decode_records(payload: bytes) -> list[AnyRecord]:
    return _decoder.decode(payload)
