"""What a number in a storage may be, by its kind: types for the fields of whatever is read from there.

A storage is hostile input. Numbers are checked where a document is decoded, by these types, so that no loop and no
allocation later depends on one that no cluster and no run could have given.
"""

from typing import Annotated, Final

from msgspec import Meta

from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId

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
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
#: Of a record: whatever its producer has set.
RecordTimestamp = Annotated[int, Meta(ge=-_INT64_MAX - 1, le=_INT64_MAX)]
