"""The records that every golden file holds: what each client was told to send."""

from quorate.kernel.ids import Offset
from quorate.records.record import Record

BASE_TIMESTAMP_MS = 1_700_000_000_000
DAY_MS = 24 * 60 * 60 * 1000

GOLDEN_RECORDS = [
    Record(Offset(0), BASE_TIMESTAMP_MS, b"key-0", b"a value that shrinks " * 20),
    Record(Offset(1), BASE_TIMESTAMP_MS + 5, None, b"a value without a key"),
    Record(Offset(2), BASE_TIMESTAMP_MS + 3, b"tombstone", None),
    Record(
        Offset(3),
        BASE_TIMESTAMP_MS + 7,
        b"key-3",
        b"a value with headers",
        (("trace", b"first"), ("trace", b"second"), ("empty", b""), ("größe", b"\x00\xff")),
    ),
    # More than 2^31 milliseconds after the first: its delta needs a varlong.
    Record(Offset(4), BASE_TIMESTAMP_MS + 40 * DAY_MS, b"", b""),
]
