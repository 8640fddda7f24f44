"""Which proposals wait for their fate.

A ticket outlives the leadership in which it was accepted: a later leader may still commit the entry.
"""

from quorate.kernel.ids import Offset, Term
from quorate.quorum.core.outcomes import Outcome, ProposalAccepted, ProposalCommitted, ProposalLost, ProposalUncertain


class ProposalTickets:
    def __init__(self, finished: list[Outcome]) -> None:
        self._finished = finished
        self._waiting: dict[Offset, int] = {}  # Offsets grow.

    def accepted(self, ticket: int, offset: Offset, term: Term) -> None:
        self._waiting[offset] = ticket
        self._finished.append(ProposalAccepted(ticket, offset, term))

    def committed(self, end_offset: Offset) -> None:
        for offset in [offset for offset in self._waiting if offset < end_offset]:
            self._finished.append(ProposalCommitted(self._waiting.pop(offset), offset))

    def truncated(self, end_offset: Offset) -> None:
        for offset in [offset for offset in self._waiting if offset >= end_offset]:
            self._finished.append(ProposalLost(self._waiting.pop(offset)))

    def replaced_by_snapshot(self) -> None:
        self._finished.extend(ProposalUncertain(ticket) for ticket in self._waiting.values())
        self._waiting.clear()
