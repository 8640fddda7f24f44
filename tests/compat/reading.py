"""Reading a known number of records through any client."""

from contextlib import closing

from tests.compat.clients.client import Client, Reader, Record, StoredRecord
from tests.eventually import eventually


def read_all(client: Client, topic: str, count: int, partition: int = 0) -> list[Record]:
    """The first records of a partition, whose offsets must have no gap."""
    with closing(client.reader({(topic, partition): 0})) as reader:
        stored = read(reader, count)
    assert [each.offset for each in stored] == list(range(len(stored)))
    return [each.record for each in stored]


def read(reader: Reader, count: int) -> list[StoredRecord]:
    """Poll until so many records are there; more than asked for is a failure of the comparison that follows."""
    stored: list[StoredRecord] = []

    def enough() -> bool:
        stored.extend(reader.poll())
        return len(stored) >= count

    eventually(enough, f"{count} records")
    return stored
