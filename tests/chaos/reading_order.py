"""In which order a consumer may read the records of a partition."""

from tests.simulation.replication.history import HistoryBroken


class ReadingOrder:
    """From the beginning on, none left out.

    It may go back to where a leader epoch begins, and read the same again: a consumer of librdkafka does so by itself,
    as a test with Apache Kafka shows (tests/kafka/test_librdkafka_goes_back.py).
    """

    def __init__(self) -> None:
        self.went_back = 0
        self._next = 0
        #: Of every record up to the furthest one, by offset.
        self._epochs: list[int] = []

    def read(self, offset: int, leader_epoch: int) -> None:
        if offset != self._next:
            if not self._begins_an_epoch(offset):
                raise HistoryBroken(f"skipped from {self._next} to {offset}")
            self.went_back += 1
        self._next = offset + 1
        if offset == len(self._epochs):
            self._epochs.append(leader_epoch)
        elif self._epochs[offset] != leader_epoch:
            raise HistoryBroken(f"read {offset} in epoch {self._epochs[offset]}, and then in {leader_epoch}")

    def _begins_an_epoch(self, offset: int) -> bool:
        """Whether a record was read there, the first of an epoch that follows another."""
        return 0 < offset < len(self._epochs) and self._epochs[offset - 1] < self._epochs[offset]
