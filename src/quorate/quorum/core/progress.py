"""What a leader knows of one peer's log, and how much it may send it.

A peer starts in PROBE: one append at a time until it is known where the logs agree. Then REPLICATE: appends follow each
other without waiting, up to a bound. SNAPSHOT: what the peer lacks is compacted, and nothing is sent until it has the
snapshot.
"""

import enum
from collections import deque

from quorate.kernel.ids import Offset


class ProgressState(enum.Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    def __init__(self, next_offset: Offset, max_in_flight: int) -> None:
        self.state = ProgressState.PROBE
        # The logs agree up to here, durably. Moves back only where the peer says that damage took entries.
        self.match_end_offset = Offset(0)
        self.next_offset = next_offset  # Of the next append; never below match_end_offset.
        self.told_high_watermark = Offset(0)
        self.acknowledged_read_round = 0
        self.is_active = True  # Heard from since the last quorum check.
        # An append is due even if it is empty: to find out where the logs agree, or whether an append was lost.
        self.probe_due = True
        self._in_flight: deque[Offset] = deque()  # End offsets of unanswered appends.
        self._max_in_flight = max_in_flight
        self._snapshot_end_offset = Offset(0)
        self._snapshot_retry_at_ms = 0

    @property
    def can_stream(self) -> bool:
        return self.state is ProgressState.REPLICATE and len(self._in_flight) < self._max_in_flight

    def sent(self, end_offset: Offset) -> None:
        self.probe_due = False
        if self.state is ProgressState.REPLICATE and end_offset > self.next_offset:
            self._in_flight.append(end_offset)
            self.next_offset = end_offset

    def sent_snapshot(self, end_offset: Offset, retry_at_ms: int) -> None:
        self._enter(ProgressState.SNAPSHOT)
        self.probe_due = False
        self._snapshot_end_offset = end_offset
        self._snapshot_retry_at_ms = retry_at_ms

    def accepted(self, match_end_offset: Offset) -> None:
        """The peer's log agrees up to here; the answer may be an old one."""
        self.match_end_offset = max(self.match_end_offset, match_end_offset)
        if self.state is ProgressState.SNAPSHOT and self.match_end_offset < self._snapshot_end_offset:
            return
        if self.state is not ProgressState.REPLICATE:
            self._enter(ProgressState.REPLICATE)
            self.next_offset = self.match_end_offset
        self.next_offset = max(self.next_offset, self.match_end_offset)
        while self._in_flight and self._in_flight[0] <= match_end_offset:
            self._in_flight.popleft()

    def rejected(self, base_offset: Offset, agreeing_end_offset: Offset) -> None:
        """The peer's log does not reach or fit base_offset; it may agree up to the other offset."""
        if self.state is ProgressState.REPLICATE:
            if base_offset > self.match_end_offset:
                self.probe(self.match_end_offset)
        elif self.state is ProgressState.PROBE and base_offset == self.next_offset:
            self.probe(min(base_offset, agreeing_end_offset))

    def heartbeat_answered(self, log_end_offset: Offset, now_ms: int) -> None:
        """The peer is there, so whatever it has not answered may be lost: find out."""
        if self.state is ProgressState.SNAPSHOT:
            if now_ms >= self._snapshot_retry_at_ms:
                self.probe(self.match_end_offset)
        elif self.match_end_offset < log_end_offset or self.state is ProgressState.PROBE:
            self.probe_due = True

    def lose_connection(self) -> None:
        """What was in flight is lost; the next answer to a heartbeat says when to send again."""
        if self.state is ProgressState.SNAPSHOT:
            self._snapshot_retry_at_ms = 0
        else:
            self.probe(self.match_end_offset)
            self.probe_due = False

    def log_damaged(self, end_offset: Offset) -> None:
        """The peer had accepted more than it has now. That it is told again changes nothing."""
        if end_offset < self.match_end_offset:
            self.match_end_offset = self.told_high_watermark = Offset(0)
            self.probe(end_offset)

    def probe(self, next_offset: Offset) -> None:
        self._enter(ProgressState.PROBE)
        self.next_offset = max(self.match_end_offset, next_offset)
        self.probe_due = True

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self._in_flight.clear()
