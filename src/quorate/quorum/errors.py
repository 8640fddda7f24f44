"""Why the quorum did not do what it was asked for. It is never shown to a client: the asker tries again.

The other reason is ``OutcomeUnknown`` of the peer transport, wherever the answer was lost.
"""

from quorate.kernel.ids import QuorumLeader
from quorate.quorum.core.membership import ChangeRefusal
from quorate.quorum.core.outcomes import Refusal


class NotQuorumLeader(Exception):
    """Nothing happened and nothing will: safe to ask again, at the leader where one is known."""

    def __init__(self, reason: str | Refusal | ChangeRefusal, leader: QuorumLeader | None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.leader = leader
