"""Linearizable reads without a lease: a leader proves, by a round of heartbeats, that it led when it was asked.

Reads that arrive between two flushes share a round. Until the leader has committed an entry of its own term it does not
know what is committed, and reads wait (thesis, section 6.4).
"""

from collections import deque

import msgspec

from quorate.kernel.ids import Offset
from quorate.quorum.core.outcomes import Outcome, ReadReady


class _Round(msgspec.Struct, frozen=True):
    number: int
    read_offset: Offset
    tickets: list[int]


class ReadRounds:
    def __init__(self) -> None:
        self.current_round = 0
        self._unasked: list[int] = []
        self._asked: deque[_Round] = deque()

    def add(self, ticket: int) -> None:
        self._unasked.append(ticket)

    def start_round(self, high_watermark: Offset) -> bool:
        """Put the reads that wait into a new round; return whether there were any."""
        if not self._unasked:
            return False
        self.current_round += 1
        self._asked.append(_Round(self.current_round, high_watermark, self._unasked))
        self._unasked = []
        return True

    def confirm(self, acknowledged_round: int) -> list[Outcome]:
        ready: list[Outcome] = []
        while self._asked and self._asked[0].number <= acknowledged_round:
            confirmed = self._asked.popleft()
            ready.extend(ReadReady(ticket, confirmed.read_offset) for ticket in confirmed.tickets)
        return ready

    def abandon(self) -> list[int]:
        """The tickets of all reads that will not be answered."""
        tickets = [ticket for asked in self._asked for ticket in asked.tickets] + self._unasked
        self._asked.clear()
        self._unasked = []
        return tickets
