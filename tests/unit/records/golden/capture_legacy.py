"""Makes the golden message sets of formats 0 and 1, with the builders of the clients that still have them.

    python -m tests.unit.records.golden.capture_legacy

Needs no broker, but lz4, python-snappy and xxhash for kafka-python's builder. The bytes are as a producer sends them:
the offset of a wrapper is 0.
"""

from pathlib import Path

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from tests.unit.records.golden.content import GOLDEN_RECORDS

BUILDERS = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
NOT_OFFERED = {("aiokafka", 0, "lz4")}


def main() -> None:
    for client, new_builder in BUILDERS.items():
        for magic in (0, 1):
            for codec, number in CODECS.items():
                if (client, magic, codec) in NOT_OFFERED:
                    continue
                builder = new_builder(magic, number, 1_000_000)
                for record in GOLDEN_RECORDS:
                    timestamp = record.timestamp if magic else None
                    builder.append(record.offset, timestamp=timestamp, key=record.key, value=record.value)
                golden_file = Path(__file__).parent / f"{client}-magic{magic}-{codec}.messages"
                golden_file.write_bytes(bytes(builder.build()))


if __name__ == "__main__":
    main()
