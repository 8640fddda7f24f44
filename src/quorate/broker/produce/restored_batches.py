"""What a topic takes while it is restored with its offsets: batches of its restore, as they are.

They have their offsets already, with holes where the source has no record, and their offset for a sequence. No other
producer can have the id of the restore, since ids are never given out twice.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.records.errors import InvalidRecord
from quorate.records.validation import validate_produced
from quorate.replication.partition_settings import PartitionSettings

_SEQUENCE_SPAN = 2**31


def check_restored(settings: PartitionSettings, batch: memoryview, produce_version: int) -> memoryview:
    """The batch; whether its offset is the next one is for the log to say."""
    header = validate_produced(batch, produce_version=produce_version, may_have_holes=True)
    if header.producer_id != settings.restore_producer_id:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "The topic is being restored: until that is done only the restore may write."
        )
    if header.is_transactional or header.base_sequence != header.base_offset % _SEQUENCE_SPAN:
        raise InvalidRecord(f"offset {header.base_offset} with sequence {header.base_sequence} in a restored topic")
    return batch
