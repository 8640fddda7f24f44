"""Documents in a storage: which numbers they may hold, their seal, and how they are decoded with suspicion.

A storage is hostile input. Numbers are checked where a document is decoded, by types for its fields, so that no loop
and no allocation later depends on one that no cluster and no run could have given. Every fault is one sentence.

The seal is the last field of a JSON document, the SHA-256 of all bytes before it, so that none needs a second object to
be checked against. It is compared byte for byte, not by its meaning as JSON: one flipped bit anywhere breaks it. Every
format version of a manifest, and every decision or plan beside a backup, ends with it.
"""

import hashlib
import time
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from quorate.backup.errors import BackupError, printable
from quorate.kernel import decoding
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId

_Decoded = TypeVar("_Decoded")
_MAX_REASON_LENGTH = 1000

_SEAL_FIELD = b',"sha256":"'
_SEAL_END = b'"}\n'
_SEAL_BYTES = len(_SEAL_FIELD) + 64 + len(_SEAL_END)

_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_LAST_MOMENT_MS: Final = 253_402_300_799_999  # Of the year 9999.

MAX_MANIFEST_NUMBER: Final = 10**12 - 1
#: Of one topic. Apache Kafka makes no more than a tenth of that in one request.
MAX_PARTITIONS: Final = 100_000
#: More than the largest object that any object store takes.
MAX_SIZE_BYTES: Final = 2**43

StoredOffset = Annotated[Offset, Meta(ge=0, le=_INT64_MAX)]
StoredPartition = Annotated[PartitionIndex, Meta(ge=0, lt=MAX_PARTITIONS)]
PartitionCount = Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)]
StoredEpoch = Annotated[LeaderEpoch, Meta(ge=-1, le=_INT32_MAX)]
StoredProducerId = Annotated[ProducerId, Meta(ge=-1, le=_INT64_MAX)]
StoredProducerEpoch = Annotated[ProducerEpoch, Meta(ge=-1, le=_INT16_MAX)]
Generation = Annotated[int, Meta(ge=1, le=_INT32_MAX)]
ManifestNumber = Annotated[int, Meta(ge=1, le=MAX_MANIFEST_NUMBER)]
#: Of batches, records or offsets.
Count = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
SizeBytes = Annotated[int, Meta(ge=0, le=MAX_SIZE_BYTES)]
BatchBytes = Annotated[int, Meta(ge=0, le=_INT32_MAX)]
#: When a run or an operator did something. It can always be shown as a date.
MomentMs = Annotated[int, Meta(ge=0, le=_LAST_MOMENT_MS)]
#: Between two of them.
DurationMs = Annotated[int, Meta(ge=-_LAST_MOMENT_MS, le=_LAST_MOMENT_MS)]
#: Of a run, where it is a part of an object's name.
NamingRunId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
#: Of a record: whatever its producer has set.
RecordTimestamp = Annotated[int, Meta(ge=-_INT64_MAX - 1, le=_INT64_MAX)]


def now_ms() -> int:
    """The moment, as a run stamps what it stores with it."""
    return time.time_ns() // 1_000_000


def seal(document: bytes) -> bytes:
    """A JSON object, which is not empty, with the digest as its last field."""
    content = document.removesuffix(b"}")
    return content + _seal_of(content)


def is_sealed(data: bytes) -> bool:
    """Whether the document is, to the bit, what was sealed."""
    content = data[:-_SEAL_BYTES]
    return data[len(content) :] == _seal_of(content)


def _seal_of(content: bytes) -> bytes:
    return _SEAL_FIELD + hashlib.sha256(content).hexdigest().encode() + _SEAL_END


class DamagedDocument(BackupError):
    """An object beside a backup is there and cannot be believed."""


class DocumentFault(ValueError):
    """The bytes are not a document of this kind; the caller adds which object it is."""


def decode_json(data: bytes | memoryview, kind: type[_Decoded]) -> _Decoded:
    try:
        return decoding.decode_json(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DocumentFault(one_line(str(error))) from None
    except RecursionError:
        raise DocumentFault("it is nested too deeply") from None


def encode_sealed(document: msgspec.Struct) -> bytes:
    """With its SHA-256 at the end, as manifests have it."""
    encoded = msgspec.json.encode(document)
    assert encoded != b"{}", "a document without a field cannot be sealed"
    return seal(encoded)


def decode_sealed(data: bytes, kind: Any) -> Any:
    if not is_sealed(data):
        raise DocumentFault("it does not match its SHA-256")
    return decode_json(data, kind)


def decode_packed(data: bytes, kind: Any) -> Any:
    """The same for msgpack."""
    try:
        return decoding.decode_msgpack(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise DocumentFault(one_line(str(error))) from None
    except RecursionError:
        raise DocumentFault("it is nested too deeply") from None


def one_line(text: str) -> str:
    """Somebody else's text, made safe for a sentence: it moves no cursor and begins no line."""
    shown = printable(text)
    return shown if len(shown) <= _MAX_REASON_LENGTH else f"{shown[:_MAX_REASON_LENGTH]}…"
