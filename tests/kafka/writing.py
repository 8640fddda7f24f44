"""Records for the tests, written by a client that is not ours, and read back from raw batches."""

from collections.abc import Iterable, Sequence

from confluent_kafka import Producer

from quorate.client.fetch.batches import FetchedBatches
from quorate.records.record import Record, iterate_records


def values(count: int, size_bytes: int = 100) -> list[bytes]:
    return [f"record-{number}-".encode().ljust(size_bytes, b"x") for number in range(count)]


def write(bootstrap: str, topic: str, partition: int, content: Iterable[bytes], **settings: object) -> None:
    """Append the values in order, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **settings})
    failures = []
    for value in content:
        while True:
            try:
                producer.produce(
                    topic,
                    value=value,
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert failures == []


def records_of(pieces: Iterable[FetchedBatches]) -> list[Record]:
    """Decode while the pieces' memory is valid."""
    return [
        record for piece in pieces for batch in piece.walk() for record in iterate_records(piece.data, batch.position)
    ]


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]
